-- Schema 8: lists, counts and open questions cost what they return, not what the namespace holds.

-- Lists by status, so that an idle session is found among the active ones only, and by folder.
DROP INDEX stream_recent;
CREATE INDEX stream_recent ON stream (namespace, origin, status, updated_at, id)
    WHERE kind = 'session';
CREATE INDEX stream_by_folder ON stream (namespace, cwd, origin, updated_at, id)
    WHERE kind = 'session' AND cwd IS NOT NULL;

-- The oldest session that an age limit can remove, and the oldest keys.
CREATE INDEX stream_by_age ON stream (namespace, created_at)
    WHERE kind = 'session' AND status <> 'erased';
CREATE INDEX idempotency_by_age ON idempotency (namespace, at);

-- Questions that no entry of their own session closes.
CREATE TABLE open_question (
    namespace INTEGER NOT NULL,
    stream    INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    PRIMARY KEY (namespace, stream, seq)
) STRICT, WITHOUT ROWID;

INSERT INTO open_question
SELECT s.namespace, q.stream, q.seq FROM entry AS q CROSS JOIN stream AS s ON s.no = q.stream
WHERE q.kind = (SELECT no FROM kind WHERE name = 'question') AND q.run IS NULL
    AND q.salt IS NOT NULL AND s.namespace > 0
    AND NOT EXISTS (
        SELECT 1 FROM entry AS a WHERE a.stream = q.stream AND a.ref = q.seq AND a.run IS NULL
            AND a.kind IN (SELECT no FROM kind WHERE name IN ('answer', 'question_withdrawn')));

-- What a namespace holds, kept by the triggers below. streams and entries count what was erased,
-- sessions, flows and kept do not. body_bytes are those of bodies, content_bytes those of contents,
-- packed_bytes what contents take as they are kept. Entries after the position in counted are not
-- included: a commit counts them every 64 positions, so that most appends write no extra page, and
-- each read adds them.
CREATE TABLE usage (
    namespace     INTEGER PRIMARY KEY,
    streams       INTEGER NOT NULL,
    sessions      INTEGER NOT NULL,
    flows         INTEGER NOT NULL,
    entries       INTEGER NOT NULL,
    kept          INTEGER NOT NULL,
    body_bytes    INTEGER NOT NULL,
    content_bytes INTEGER NOT NULL,
    packed_bytes  INTEGER NOT NULL
) STRICT;

INSERT INTO usage
SELECT n.no,
    (SELECT count(*) FROM stream WHERE namespace = n.no),
    (SELECT count(*) FROM stream WHERE namespace = n.no AND kind = 'session' AND status <> 'erased'),
    (SELECT count(*) FROM stream WHERE namespace = n.no AND kind <> 'session' AND status <> 'erased'),
    (SELECT count(*) FROM stream AS s CROSS JOIN entry AS e ON e.stream = s.no
     WHERE s.namespace = n.no),
    (SELECT count(e.salt) FROM stream AS s CROSS JOIN entry AS e ON e.stream = s.no
     WHERE s.namespace = n.no),
    (SELECT coalesce(sum(length(e.body)), 0) FROM stream AS s CROSS JOIN entry AS e
     ON e.stream = s.no WHERE s.namespace = n.no),
    (SELECT coalesce(sum(size), 0) FROM blob WHERE namespace = n.no),
    (SELECT coalesce(sum(length(content)), 0) FROM blob WHERE namespace = n.no)
FROM namespace AS n;

CREATE TABLE counted (
    position INTEGER NOT NULL
) STRICT;

INSERT INTO counted SELECT coalesce(max(n), 0) FROM entry;

-- A quota is only its limits now: usage counts.
DROP TRIGGER IF EXISTS quota_stream_made;
DROP TRIGGER IF EXISTS quota_stream_gone;
DROP TRIGGER IF EXISTS quota_stream_swept;
DROP TRIGGER IF EXISTS quota_entry_made;
DROP TRIGGER IF EXISTS quota_entry_gone;
DROP TRIGGER IF EXISTS quota_blob_made;
DROP TRIGGER IF EXISTS quota_blob_gone;
ALTER TABLE quota RENAME TO quota_before;
CREATE TABLE quota (
    namespace    INTEGER PRIMARY KEY,
    max_sessions INTEGER,
    max_entries  INTEGER,
    max_bytes    INTEGER,
    is_lifted    INTEGER NOT NULL DEFAULT 0
) STRICT;
INSERT INTO quota SELECT namespace, max_sessions, max_entries, max_bytes, 0 FROM quota_before;
DROP TABLE quota_before;

CREATE TRIGGER usage_begun AFTER INSERT ON namespace BEGIN
    INSERT INTO usage VALUES (NEW.no, 0, 0, 0, 0, 0, 0, 0, 0);
END;

CREATE TRIGGER usage_stream_made AFTER INSERT ON stream BEGIN
    UPDATE usage SET streams = streams + 1,
        sessions = sessions + (NEW.kind = 'session' AND NEW.status <> 'erased'),
        flows = flows + (NEW.kind <> 'session' AND NEW.status <> 'erased')
    WHERE namespace = NEW.namespace;
    SELECT RAISE(ABORT, 'perdure quota sessions') FROM quota AS q CROSS JOIN usage AS u
    WHERE q.namespace = NEW.namespace AND u.namespace = q.namespace AND NOT q.is_lifted
        AND u.sessions + u.flows > q.max_sessions;
END;

CREATE TRIGGER usage_stream_erased AFTER UPDATE OF status ON stream
WHEN (OLD.status = 'erased') <> (NEW.status = 'erased') BEGIN
    UPDATE usage SET
        sessions = sessions + (NEW.kind = 'session') * iif(NEW.status = 'erased', -1, 1),
        flows = flows + (NEW.kind <> 'session') * iif(NEW.status = 'erased', -1, 1)
    WHERE namespace = NEW.namespace;
END;

CREATE TRIGGER usage_stream_removed AFTER UPDATE OF namespace ON stream
WHEN OLD.namespace <> NEW.namespace BEGIN
    UPDATE usage SET streams = streams - 1,
        sessions = sessions - (NEW.kind = 'session' AND NEW.status <> 'erased'),
        flows = flows - (NEW.kind <> 'session' AND NEW.status <> 'erased'),
        (entries, kept, body_bytes) = (
            SELECT entries - count(*), kept - count(e.salt),
                body_bytes - coalesce(sum(length(e.body)), 0)
            FROM entry AS e WHERE e.stream = NEW.no AND e.n <= (SELECT position FROM counted))
    WHERE namespace = OLD.namespace;
END;

-- Entries are written before the commit that they are of. With a quota every commit is counted.
CREATE TRIGGER usage_commit_made AFTER INSERT ON commits
WHEN NEW.first % 64 + NEW.count > 63 OR EXISTS (SELECT 1 FROM quota) BEGIN
    UPDATE usage SET entries = usage.entries + t.entries, kept = usage.kept + t.kept,
        body_bytes = usage.body_bytes + t.size
    FROM (
        SELECT s.namespace, count(*) AS entries, count(e.salt) AS kept, sum(length(e.body)) AS size
        FROM entry AS e CROSS JOIN stream AS s ON s.no = e.stream
        WHERE e.n > (SELECT position FROM counted) GROUP BY s.namespace
    ) AS t WHERE usage.namespace = t.namespace;
    UPDATE counted SET position = NEW.first + NEW.count - 1;
    SELECT RAISE(ABORT, 'perdure quota entries') FROM quota AS q CROSS JOIN usage AS u
    WHERE q.namespace = (
            SELECT s.namespace FROM entry AS e CROSS JOIN stream AS s ON s.no = e.stream
            WHERE e.n = NEW.first)
        AND u.namespace = q.namespace AND NOT q.is_lifted AND u.kept > q.max_entries;
    SELECT RAISE(ABORT, 'perdure quota bytes') FROM quota AS q CROSS JOIN usage AS u
    WHERE q.namespace = (
            SELECT s.namespace FROM entry AS e CROSS JOIN stream AS s ON s.no = e.stream
            WHERE e.n = NEW.first)
        AND u.namespace = q.namespace AND NOT q.is_lifted
        AND u.body_bytes + u.packed_bytes > q.max_bytes;
END;

CREATE TRIGGER usage_entry_erased AFTER UPDATE OF salt, body ON entry
WHEN NEW.n <= (SELECT position FROM counted) BEGIN
    UPDATE usage SET kept = kept + (NEW.salt IS NOT NULL) - (OLD.salt IS NOT NULL),
        body_bytes = body_bytes + length(NEW.body) - length(OLD.body)
    WHERE namespace = (SELECT namespace FROM stream WHERE no = NEW.stream);
END;

CREATE TRIGGER usage_content_made AFTER INSERT ON blob BEGIN
    UPDATE usage SET content_bytes = content_bytes + NEW.size,
        packed_bytes = packed_bytes + length(NEW.content)
    WHERE namespace = NEW.namespace;
    SELECT RAISE(ABORT, 'perdure quota bytes') FROM quota AS q CROSS JOIN usage AS u
    WHERE q.namespace = NEW.namespace AND u.namespace = q.namespace AND NOT q.is_lifted
        AND u.body_bytes + u.packed_bytes > q.max_bytes;
END;

CREATE TRIGGER usage_content_removed AFTER DELETE ON blob BEGIN
    UPDATE usage SET content_bytes = content_bytes - OLD.size,
        packed_bytes = packed_bytes - length(OLD.content)
    WHERE namespace = OLD.namespace;
END;
