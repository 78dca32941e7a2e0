-- Schema 2: contents may be kept compressed.
--
-- packing: 0 as they are, 1 by zlib. size counts the bytes of the content itself; its digest, too,
-- is that of the content, not of what is kept.

ALTER TABLE blob ADD COLUMN packing INTEGER NOT NULL DEFAULT 0;
