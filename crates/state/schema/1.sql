-- One row: what the rest must add up to.
CREATE TABLE meta (
    one INTEGER PRIMARY KEY CHECK (one = 1),
    install TEXT NOT NULL,
    writes INTEGER NOT NULL,
    schema_sum INTEGER NOT NULL,
    runs INTEGER NOT NULL,
    runs_mix INTEGER NOT NULL,
    attempts INTEGER NOT NULL,
    attempts_mix INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;

CREATE TABLE runs (
    seq INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    session TEXT NOT NULL,
    task TEXT NOT NULL,
    state TEXT NOT NULL,
    attempt TEXT NOT NULL,
    revision INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    record TEXT NOT NULL,
    sum INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX one_live_run_of_a_session ON runs (session) WHERE state NOT IN ('failed', 'closed');

CREATE TABLE attempts (
    seq INTEGER PRIMARY KEY,
    attempt TEXT NOT NULL UNIQUE,
    run TEXT NOT NULL,
    session TEXT NOT NULL,
    resumes INTEGER NOT NULL CHECK (resumes IN (0, 1)),
    phase TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    armed INTEGER NOT NULL CHECK (armed >= 0),
    armed_mix INTEGER NOT NULL,
    sum INTEGER NOT NULL
) STRICT;

CREATE INDEX attempts_of_a_run ON attempts (run);

CREATE TABLE undo (
    seq INTEGER PRIMARY KEY,
    attempt TEXT NOT NULL REFERENCES attempts (attempt),
    key TEXT NOT NULL,
    record TEXT NOT NULL,
    identity TEXT,
    tries INTEGER NOT NULL,
    last_error TEXT,
    sum INTEGER NOT NULL,
    UNIQUE (attempt, key)
) STRICT;

-- Filled and emptied once: its pages are the room that a full disk leaves us.
CREATE TABLE headroom (filler BLOB NOT NULL) STRICT;
