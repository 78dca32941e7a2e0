-- Schema 21: a commit acquires the lease of its stream.

-- Acquire the lease of a stream at the epoch _was_epoch; error PD001 if the stream has another epoch
-- or the lease is not free. The commit that follows in the transaction expects the next epoch.
CREATE FUNCTION perdure.take_lease(
    _namespace text, _stream text, _was_epoch bigint, _owner text, _ttl_ms bigint,
    _dead_owner text, _now bigint
)
RETURNS bigint
LANGUAGE plpgsql AS $$
DECLARE
    _at bigint := coalesce(_now, perdure.now_ms());
    _until bigint;
BEGIN
    UPDATE perdure.stream AS s SET epoch = s.epoch + 1, owner = _owner, until = _at + _ttl_ms
    WHERE s.namespace = _namespace AND s.id = _stream AND s.epoch = _was_epoch AND NOT s.is_erased
        AND (s.owner IS NULL OR s.owner = _dead_owner OR s.until - _at NOT BETWEEN 1 AND 86400000)
    RETURNING s.until INTO _until;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'the lease is not free' USING ERRCODE = 'PD001';
    END IF;
    RETURN _until;
END
$$;
