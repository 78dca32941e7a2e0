-- Schema 3: erasing (postgres/keeping), and the certificates of it.

-- Nobody goes on with an erased stream, forks it, or lists it.
ALTER TABLE perdure.stream ADD COLUMN is_erased boolean NOT NULL DEFAULT false;

-- certificate is stores.keeping.erasing.Certificate as JSON.
CREATE TABLE perdure.erasure (
    namespace   text COLLATE "C" NOT NULL,
    id          text COLLATE "C" NOT NULL,
    at          bigint NOT NULL,
    certificate bytea NOT NULL,
    PRIMARY KEY (namespace, id)
);

ALTER TABLE perdure.erasure ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.erasure FORCE ROW LEVEL SECURITY;
CREATE POLICY one_namespace ON perdure.erasure
    USING (namespace = current_setting('perdure.namespace', true));

-- Which streams the commit of a key wrote to, in the order of firsts; NULL where the key is older.
ALTER TABLE perdure.idempotency ADD COLUMN streams text[];

CREATE FUNCTION perdure.keep_key(
    _namespace text, _key bytea, _fingerprint bytea, _firsts bigint[], _at bigint, _streams text[]
)
RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO perdure.idempotency VALUES (_namespace, _key, _fingerprint, _firsts, _at, _streams)
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the key is taken' USING ERRCODE = 'PD002';
    END IF;
END
$$;

-- One stream's share of a commit, if the stream still stands where the writer saw it: at the hash
-- `_was` and the epoch `_was_epoch`; otherwise error PD001. A key that is taken: PD002.
-- -1 and '' mean NULL, so that the types of the parameters, and the plan, never change.
CREATE OR REPLACE FUNCTION perdure.append(
    _namespace text, _stream text, _was bytea, _was_epoch bigint,
    _head bigint, _leaf text, _tip bigint, _hash bytea, _open_turn bigint,
    _updated_at bigint, _info bytea, _at bigint, _epoch bigint, _key bytea, _fingerprint bytea,
    _kinds text[], _vs bigint[], _ats bigint[], _runs bigint[], _refs bigint[], _fars text[],
    _depths bigint[], _counts bigint[], _states bigint[], _state_fars text[],
    _salts bytea[], _digests bytea[], _bodies bytea[]
)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _many integer := array_length(_kinds, 1);
    _blocks bigint[];
BEGIN
    PERFORM set_config('perdure.namespace', _namespace, true);
    UPDATE perdure.stream AS s
    SET head = _head + _many, leaf = nullif(_leaf, ''), tip = nullif(_tip, -1), hash = _hash,
        open_turn = nullif(_open_turn, -1),
        updated_at = _updated_at, info = _info
    WHERE s.namespace = _namespace AND s.id = _stream
        AND s.hash = _was AND s.epoch = _was_epoch;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the stream moved on' USING ERRCODE = 'PD001';
    END IF;
    PERFORM perdure.mark();
    IF _many <= 256 THEN
        _blocks := ARRAY[nextval('perdure.position')];
    ELSE
        _blocks := ARRAY(
            SELECT nextval('perdure.position') FROM generate_series(1, (_many + 255) / 256)
        );
    END IF;
    INSERT INTO perdure.entry (
        namespace, stream, seq, n, at, run, ref, depth, messages, state, commit_at, commit_epoch,
        v, kind, far, state_far, salt, digest, chain, body
    )
    SELECT _namespace, _stream, _head + e.i, _blocks[(e.i - 1) / 256 + 1] + (e.i - 1) % 256,
        e.at, nullif(e.run, -1), nullif(e.ref, -1), nullif(e.depth, -1), nullif(e.messages, -1),
        nullif(e.state, -1), CASE WHEN e.i = _many THEN _at END,
        CASE WHEN e.i = _many THEN _epoch END, e.v, e.kind, nullif(e.far, ''),
        nullif(e.state_far, ''), e.salt, e.digest, CASE WHEN e.i = _many THEN _hash END, e.body
    FROM unnest(
        _kinds, _vs, _ats, _runs, _refs, _fars, _depths, _counts, _states, _state_fars,
        _salts, _digests, _bodies
    ) WITH ORDINALITY AS e (
        kind, v, at, run, ref, far, depth, messages, state, state_far, salt, digest, body, i
    );
    IF _key <> '' THEN
        PERFORM perdure.keep_key(_namespace, _key, _fingerprint, ARRAY[_head + 1], _at, ARRAY[_stream]);
    END IF;
END
$$;

-- A fork comes before the erasure of its origin, or finds it erased: error PD004. Appends to the
-- origin do not notice.
CREATE OR REPLACE FUNCTION perdure.create_stream(
    _namespace text, _stream text, _kind text, _origin text, _leaf text, _hash bytea,
    _updated_at bigint, _info bytea, _header bytea, _messages bigint,
    _from text, _from_head bigint, _is_path boolean
)
RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
    _is_erased boolean;
BEGIN
    PERFORM set_config('perdure.namespace', _namespace, true);
    IF _from IS NOT NULL THEN
        SELECT s.is_erased INTO _is_erased FROM perdure.stream AS s
        WHERE s.namespace = _namespace AND s.id = _from FOR KEY SHARE;
        IF _is_erased THEN
            RAISE EXCEPTION '%', _from USING ERRCODE = 'PD004';
        END IF;
    END IF;
    INSERT INTO perdure.stream (namespace, id, kind, origin, head, leaf, hash, updated_at, info)
    VALUES (_namespace, _stream, _kind, _origin, -1, _leaf, _hash, _updated_at, _info);
    PERFORM perdure.mark();
    INSERT INTO perdure.birth (
        namespace, stream, header, genesis, shared_messages,
        origin, origin_head, origin_leaf, is_path, n
    ) VALUES (
        _namespace, _stream, _header, _hash, _messages, _from, _from_head,
        CASE WHEN _from IS NOT NULL THEN _leaf END, _is_path, nextval('perdure.position')
    );
END
$$;

-- The role may take a body out of the log, and may not put another in its place.
CREATE FUNCTION perdure.only_erase() RETURNS trigger
LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.salt IS NOT NULL OR NEW.body <> '' THEN
        RAISE EXCEPTION 'an entry is never changed, only erased'
            USING ERRCODE = 'insufficient_privilege';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER only_erase BEFORE UPDATE ON perdure.entry
    FOR EACH ROW EXECUTE FUNCTION perdure.only_erase();

-- What an erasure does and nothing else did before: bodies with their salts, and headers.
DO $$
BEGIN
    GRANT SELECT, INSERT ON perdure.erasure TO perdure_app;
    GRANT UPDATE (salt, body) ON perdure.entry TO perdure_app;
    GRANT UPDATE (header) ON perdure.birth TO perdure_app;
    GRANT DELETE ON perdure.alias, perdure.idempotency, perdure.blob TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
