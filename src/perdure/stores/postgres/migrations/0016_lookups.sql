-- Look-ups of entries and streams by their place, also before the first ANALYZE.

-- Before the first ANALYZE, an index that begins with the namespace looks as cheap as the primary
-- key, and would be read as a whole for each look-up. A condition that only reads by position repeat
-- (`n > 0`, true for every row) keeps these two for them.
DROP INDEX perdure.entry_position;
CREATE UNIQUE INDEX entry_position ON perdure.entry (namespace, n) WHERE n > 0;
DROP INDEX perdure.birth_by_position;
CREATE INDEX birth_by_position ON perdure.birth (namespace, n) WHERE n > 0;

-- Return whether a stream, with its own log up to `_head`, sees the entry at `_seq` of `_sought`.
-- Walks the origins only up to the one that answers.
CREATE OR REPLACE FUNCTION perdure.sees(
    _namespace text, _stream text, _head bigint, _sought text, _seq bigint
)
RETURNS boolean
LANGUAGE plpgsql STABLE AS $$
DECLARE
    _near record;
BEGIN
    LOOP
        IF _stream = _sought THEN
            RETURN _seq <= _head;
        END IF;
        SELECT b.origin, b.origin_head, b.origin_leaf, b.is_path INTO _near FROM perdure.birth AS b
        WHERE b.namespace = _namespace AND b.stream = _stream;
        IF _near.is_path AND EXISTS (
            SELECT 1 FROM perdure.entry AS e
            WHERE e.namespace = _namespace AND e.stream = _sought AND e.seq = _seq
                AND e.run IS NOT NULL
        ) THEN
            RETURN _near.origin_leaf IS NOT NULL AND perdure.is_on_branch(
                _namespace, _sought, _seq,
                split_part(_near.origin_leaf, '/', 1), split_part(_near.origin_leaf, '/', 2)::bigint
            );
        END IF;
        IF _near.origin IS NULL THEN
            RETURN false;
        END IF;
        _stream := _near.origin;
        _head := _near.origin_head;
    END LOOP;
END
$$;
