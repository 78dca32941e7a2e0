-- Vectors of texts, for recall by meaning.

-- A model of vectors in a namespace. Texts up to position upto have a vector of it, or need none.
CREATE TABLE search_model (
    no        INTEGER PRIMARY KEY,
    namespace INTEGER NOT NULL,
    name      TEXT NOT NULL,
    dimension INTEGER NOT NULL,
    upto      INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX search_model_by_name ON search_model (namespace, name, dimension);

-- A vector. id is the number of the model * 2^40 + the position of the text, body a signed byte for
-- each of its numbers.
CREATE TABLE search_vector (
    id   INTEGER PRIMARY KEY,
    body BLOB NOT NULL
) STRICT;
