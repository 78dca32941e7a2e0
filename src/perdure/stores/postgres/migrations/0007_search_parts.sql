-- Schema 7: the index of search in parts (session/search/parts). The next search builds it.
--
-- The index of words (GIN) took 2 ms an entry to build, and a search 40 us a text. Here a text is a
-- short string of codes, and what finds it are some pages that are written once.

DROP FUNCTION perdure.matches(text, bigint, bigint, bigint, text, bigint);
DROP FUNCTION perdure.tidy_search();
DROP TABLE perdure.search;
DROP FUNCTION perdure.sought();
DROP FUNCTION perdure.search_namespace();

TRUNCATE perdure.search_mark;
-- How many parts were built, of which some are gone.
ALTER TABLE perdure.search_mark RENAME COLUMN texts TO parts;

-- A text that can be found. n is the position of its entry; or, negative, that of the birth of the
-- stream whose first title it is. It is the text number of a part, from 0, and said are the codes of
-- its words; or, where part is 0, it is in none yet, number is n, and said are its words in order
-- (session/search/phrase_text.py). filters, with a space between them, are kept with the part otherwise.
CREATE TABLE perdure.search (
    namespace text COLLATE "C" NOT NULL,
    n         bigint NOT NULL,
    part      bigint NOT NULL,
    number    bigint NOT NULL,
    at        bigint NOT NULL,
    length    bigint NOT NULL,
    filters   text COLLATE "C" NOT NULL,
    said      bytea NOT NULL,
    PRIMARY KEY (namespace, n)
) WITH (toast_tuple_target = 8160);

CREATE UNIQUE INDEX search_by_part ON perdure.search (namespace, part, number);

-- A part: how many texts it has, the highest of their positions, when they are from.
CREATE TABLE perdure.search_part (
    namespace text COLLATE "C" NOT NULL,
    no        bigint NOT NULL,
    size      bigint NOT NULL,
    last      bigint NOT NULL,
    first_at  bigint NOT NULL,
    last_at   bigint NOT NULL,
    PRIMARY KEY (namespace, no)
);

-- A page of a part, by the first of its keys (session/search/parts/pages.py).
CREATE TABLE perdure.search_page (
    namespace text COLLATE "C" NOT NULL,
    part      bigint NOT NULL,
    first     text COLLATE "C" NOT NULL,
    body      bytea NOT NULL,
    PRIMARY KEY (namespace, part, first)
) WITH (toast_tuple_target = 8160);

-- What is short already is not made shorter: that would cost each search more than it saves.
ALTER TABLE perdure.search ALTER COLUMN said SET STORAGE EXTERNAL;
ALTER TABLE perdure.search_page ALTER COLUMN body SET STORAGE EXTERNAL;

ALTER TABLE perdure.search ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.search FORCE ROW LEVEL SECURITY;
CREATE POLICY one_namespace ON perdure.search
    USING (namespace = current_setting('perdure.namespace', true));
ALTER TABLE perdure.search_part ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.search_part FORCE ROW LEVEL SECURITY;
CREATE POLICY one_namespace ON perdure.search_part
    USING (namespace = current_setting('perdure.namespace', true));
ALTER TABLE perdure.search_page ENABLE ROW LEVEL SECURITY;
ALTER TABLE perdure.search_page FORCE ROW LEVEL SECURITY;
CREATE POLICY one_namespace ON perdure.search_page
    USING (namespace = current_setting('perdure.namespace', true));

DO $$
BEGIN
    GRANT SELECT, INSERT, DELETE ON perdure.search, perdure.search_part, perdure.search_page
        TO perdure_app;
EXCEPTION WHEN undefined_object THEN
    NULL;
END
$$;
