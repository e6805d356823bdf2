package pgstore

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Schema makes the tables, in the first schema of the search path. It leaves those that exist.
//
//go:embed schema.sql
var Schema string

// Migrate makes the tables of [Schema]. If all are there it does nothing: a statement that leaves an index as it is
// would wait for the transactions that write to its table, and those that come later would wait for the statement.
func (s *Store) Migrate(ctx context.Context) error {
	missing, err := s.missing(ctx)
	if err == nil && missing {
		if _, err = s.driver.pool.Exec(ctx, Schema); err != nil {
			// Another process may have made them in the same moment.
			if missing, again := s.missing(ctx); again == nil && !missing {
				return nil
			}
		}
	}
	if err != nil {
		return fmt.Errorf("pgstore: the tables cannot be made: %w", err)
	}
	return nil
}

func (s *Store) missing(ctx context.Context) (any bool, err error) {
	err = s.driver.pool.QueryRow(ctx, `SELECT EXISTS (SELECT FROM unnest($1::text[]) t WHERE to_regclass(t) IS NULL)`,
		tables).Scan(&any)
	return any, err
}

// oldest is the oldest major version of Postgres that it works with.
const oldest = 13

// tables are those of [Schema].
var tables = []string{"idem_rows", "idem_parts", "idem_changes", "idem_outbox"}

// Check returns a [*protocol.ConfigError] if the tables are missing, if they may not be written, or if the server
// does not keep what it confirms. It is one round trip, and writes nothing.
func (s *Store) Check(ctx context.Context) error {
	var version int
	var replica bool
	var settings, missing, denied []string
	err := s.driver.pool.QueryRow(ctx, `SELECT current_setting('server_version_num')::int / 10000, pg_is_in_recovery(),
	ARRAY (SELECT name FROM pg_settings
		WHERE name IN ('synchronous_commit', 'fsync', 'full_page_writes') AND setting = 'off'),
	ARRAY (SELECT t FROM unnest($1::text[]) t WHERE to_regclass(t) IS NULL),
	ARRAY (SELECT t || ' ' || p FROM unnest($1::text[]) t, unnest('{SELECT,INSERT,UPDATE,DELETE}'::text[]) p
		WHERE to_regclass(t) IS NOT NULL AND NOT has_table_privilege(to_regclass(t), p))`, tables).
		Scan(&version, &replica, &settings, &missing, &denied)
	problem := ""
	switch {
	case err != nil:
		return fmt.Errorf("pgstore: the database cannot be checked: %w", failed(err, false))
	case version < oldest:
		problem = fmt.Sprintf("is Postgres %d: use %d or newer", version, oldest)
	case len(missing) > 0:
		problem = "has no table " + strings.Join(missing, ", ") + " in the search path: run the statements of pgstore.Schema"
	case len(denied) > 0:
		problem = "refuses " + strings.Join(denied, ", ") + ": grant it to the user of the pool"
	case replica:
		problem = "is a replica, which only reads: connect to the primary"
	case len(settings) > 0:
		problem = "has " + strings.Join(settings, ", ") + " off: it loses outcomes that it has confirmed when it ends, and " +
			"operations run again; set it to on"
	default:
		return nil
	}
	return &protocol.ConfigError{What: "pgstore: the database", Problem: problem}
}
