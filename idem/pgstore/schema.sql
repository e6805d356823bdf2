-- Records of idempotency: see package pgstore of github.com/idem-go/idempotency.
CREATE TABLE IF NOT EXISTS idem_rows (
	id      text COLLATE "C" PRIMARY KEY,
	version bigint   NOT NULL,
	data    text     NOT NULL, -- JSON
	body    bytea, -- the result
	shard   smallint NOT NULL,
	due     bigint, -- milliseconds
	expires bigint  -- seconds
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS idem_rows_due ON idem_rows (shard, due) WHERE due IS NOT NULL;
CREATE INDEX IF NOT EXISTS idem_rows_expires ON idem_rows (expires) WHERE expires IS NOT NULL;

CREATE TABLE IF NOT EXISTS idem_parts (
	id   text COLLATE "C" NOT NULL,
	name text COLLATE "C" NOT NULL,
	data bytea NOT NULL,
	PRIMARY KEY (id, name)
);

CREATE TABLE IF NOT EXISTS idem_changes (
	id      text COLLATE "C" NOT NULL,
	name    text COLLATE "C" NOT NULL,
	at      bigint   NOT NULL, -- milliseconds
	shard   smallint NOT NULL,
	expires bigint, -- seconds
	data    text     NOT NULL,
	PRIMARY KEY (id, name)
);
CREATE INDEX IF NOT EXISTS idem_changes_of ON idem_changes (id, at, name);
CREATE INDEX IF NOT EXISTS idem_changes_at ON idem_changes (shard, at, id, name);
CREATE INDEX IF NOT EXISTS idem_changes_expires ON idem_changes (expires) WHERE expires IS NOT NULL;

-- Messages: lane is '0' and the ordering key of one that was left to wait in its order, '1' of all others that
-- wait, and null of those that were sent or given up.
CREATE TABLE IF NOT EXISTS idem_outbox (
	record       text COLLATE "C" NOT NULL,
	id           text COLLATE "C" NOT NULL,
	number       integer NOT NULL,
	created      bigint  NOT NULL, -- milliseconds, as all but expires
	destination  text COLLATE "C" NOT NULL,
	ordering_key text    NOT NULL,
	head         text    NOT NULL, -- JSON
	body         bytea   NOT NULL,
	state        text    NOT NULL,
	lane         text COLLATE "C",
	tries        integer NOT NULL DEFAULT 0,
	next_try     bigint,
	reason       text    NOT NULL DEFAULT '',
	sent_id      text    NOT NULL DEFAULT '',
	ended        bigint, -- when it was sent or given up
	resent       integer NOT NULL DEFAULT 0,
	expires      bigint, -- seconds
	PRIMARY KEY (record, id)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS idem_outbox_waiting ON idem_outbox (destination, lane, created, number, id)
	WHERE lane IS NOT NULL;
CREATE INDEX IF NOT EXISTS idem_outbox_dead ON idem_outbox (ended, id) WHERE state = 'dead';
CREATE INDEX IF NOT EXISTS idem_outbox_expires ON idem_outbox (expires) WHERE expires IS NOT NULL;
