-- Schema 8: an append asks less of the server (postgres/appending).
--
-- The numbers of all entries come in one array, since each array that a function is given costs
-- several microseconds, and the commit that ends a turn takes away what had arrived of its answer.
-- The function of schema 7, which has other parameters, stays for programs that are connected while
-- this is applied.

-- As in schema 4. `_numbers` holds seven of each entry, one entry after the other: v, at, run, ref,
-- depth, messages, state. `_fars` and `_state_fars` are empty where there is nothing in them.
-- `_ends_turn`: nothing of an answer is on its way any more.
CREATE FUNCTION perdure.append(
    _namespace text, _stream text, _was bytea, _was_epoch bigint,
    _head bigint, _leaf text, _tip bigint, _hash bytea, _open_turn bigint,
    _updated_at bigint, _info bytea, _at bigint, _epoch bigint, _key bytea, _fingerprint bytea,
    _ends_turn boolean, _numbers bigint[], _kinds text[], _fars text[], _state_fars text[],
    _salts bytea[], _digests bytea[], _bodies bytea[]
)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _many integer := array_length(_kinds, 1);
    _is_limited boolean;
    _newest bigint;
    _first bigint;
    _blocks bigint[];
    _set text;
BEGIN
    -- An assignment needs no query, as a PERFORM would.
    _set := set_config('perdure.namespace', _namespace, true);
    UPDATE perdure.stream AS s
    SET head = _head + _many, leaf = nullif(_leaf, ''), tip = nullif(_tip, -1), hash = _hash,
        open_turn = nullif(_open_turn, -1),
        updated_at = _updated_at, info = _info
    WHERE s.namespace = _namespace AND s.id = _stream
        AND s.hash = _was AND s.epoch = _was_epoch
    RETURNING s.is_limited INTO _is_limited;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the stream moved on' USING ERRCODE = 'PD001';
    END IF;
    -- What perdure.mark() does.
    PERFORM pg_advisory_xact_lock_shared(
        (20581::bigint << 48) | CASE WHEN p.is_called THEN p.last_value + 255 ELSE 0 END
    ) FROM perdure.position AS p;
    _first := nextval('perdure.position');
    IF _many > 256 THEN
        _blocks := _first || ARRAY(
            SELECT nextval('perdure.position') FROM generate_series(1, (_many - 1) / 256)
        );
    END IF;
    INSERT INTO perdure.entry (
        namespace, stream, seq, n, at, run, ref, depth, messages, state, commit_at, commit_epoch,
        v, kind, far, state_far, salt, digest, chain, body
    )
    SELECT _namespace, _stream, _head + e.i,
        coalesce(_blocks[(e.i - 1) / 256 + 1], _first) + (e.i - 1) % 256,
        _numbers[7 * e.i - 5], nullif(_numbers[7 * e.i - 4], -1), nullif(_numbers[7 * e.i - 3], -1),
        nullif(_numbers[7 * e.i - 2], -1), nullif(_numbers[7 * e.i - 1], -1),
        nullif(_numbers[7 * e.i], -1), CASE WHEN e.i = _many THEN _at END,
        CASE WHEN e.i = _many THEN _epoch END, _numbers[7 * e.i - 6], e.kind, nullif(e.far, ''),
        nullif(e.state_far, ''), e.salt, e.digest, CASE WHEN e.i = _many THEN _hash END, e.body
    FROM unnest(_kinds, _fars, _state_fars, _salts, _digests, _bodies) WITH ORDINALITY AS e (
        kind, far, state_far, salt, digest, body, i
    );
    IF _ends_turn THEN
        DELETE FROM perdure.partial AS p WHERE p.namespace = _namespace AND p.stream = _stream;
    END IF;
    IF _key <> '' THEN
        PERFORM perdure.keep_key(_namespace, _key, _fingerprint, ARRAY[_head + 1], _at, ARRAY[_stream]);
    END IF;
    IF _is_limited THEN
        PERFORM perdure.count(
            _namespace, 0,
            (SELECT count(*) FROM unnest(_salts) AS s (salt) WHERE s.salt IS NOT NULL),
            (SELECT coalesce(sum(octet_length(b.body)), 0) FROM unnest(_bodies) AS b (body))::bigint
        );
    END IF;
END
$$;
