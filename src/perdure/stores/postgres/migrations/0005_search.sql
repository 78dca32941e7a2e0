-- Schema 5: the words of a text in order, beside the different ones (session/search/phrase_text.py).
--
-- What fits and what comes first is decided by them, so a search reads of the log what it shows. The
-- index is made anew by the next search: pairs of neighbours stand for where they begin, too.

TRUNCATE perdure.search, perdure.search_mark;

-- length is how many they are.
ALTER TABLE perdure.search
    ADD COLUMN said text COLLATE "C" NOT NULL,
    ADD COLUMN length bigint NOT NULL;

-- What is sought matters to who reads; to look for it in what is added costs as much as adding it.
ALTER POLICY one_namespace ON perdure.search
    WITH CHECK (namespace = current_setting('perdure.namespace', true));

-- Put away 8 MB at a time, measured to cost two thirds of doing it every 512 kB.
ALTER INDEX perdure.search_words SET (gin_pending_list_limit = 8192);

-- Put away what is left: only its owner may do that, and whoever indexes has to, or every search
-- goes through it.
CREATE FUNCTION perdure.tidy_search() RETURNS void
LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS $$
    SELECT gin_clean_pending_list('perdure.search_words'::regclass)
$$;

DROP FUNCTION perdure.matches(text, text, bigint, bigint, bigint, bigint);

-- The newest texts that hold what is sought, and `_certain` among their words, below `_below`. By
-- the index of words, whatever the planner thinks of it (n + 0 is no key): it may have planned when
-- the tables were empty.
CREATE FUNCTION perdure.matches(
    _sought text, _below bigint, _since bigint, _until bigint, _certain text, _limit bigint
)
RETURNS TABLE (m_n bigint, m_stream text, m_length bigint, m_said text)
LANGUAGE plpgsql STABLE
SET enable_bitmapscan = on AS $$
DECLARE
    _least bigint;
BEGIN
    PERFORM set_config('perdure.sought', _sought, true);
    -- Sorted are positions only: with their texts it takes ten times as long.
    SELECT min(newest.n) INTO _least FROM (
        SELECT s.n + 0 AS n FROM perdure.search AS s
        WHERE s.n + 0 < _below AND s.at >= _since AND s.at < _until
            AND (_certain = '' OR strpos(s.said, _certain) > 0)
        ORDER BY s.n + 0 DESC LIMIT _limit
    ) AS newest;
    IF _least IS NOT NULL THEN
        RETURN QUERY
        SELECT s.n, s.stream, s.length, s.said FROM perdure.search AS s
        WHERE s.n + 0 >= _least AND s.n + 0 < _below AND s.at >= _since AND s.at < _until
            AND (_certain = '' OR strpos(s.said, _certain) > 0)
        ORDER BY s.n + 0 DESC;
    END IF;
    PERFORM set_config('perdure.sought', '', true);
END
$$;
