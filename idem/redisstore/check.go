package redisstore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem/protocol"
)

// oldest is the oldest major version of Redis that it works with. A Valkey says that it is a Redis 7.
const oldest = 7

// Check returns a [*protocol.ConfigError] if a server is too old, if it is a replica, if it removes records when its
// memory is used up, or if it is one of your own that is not [Durable] although the options say so. It is two round
// trips to each node, and writes nothing. What a server does not say is not known, and no error: managed ones refuse
// CONFIG, by which a server of your own is known.
func (s *Store) Check(ctx context.Context) error {
	nodes := s.driver.client.Nodes()
	for _, addr := range slices.Sorted(maps.Keys(nodes)) {
		if err := s.check(ctx, addr, nodes[addr], len(nodes) > 1); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) check(ctx context.Context, addr string, node valkey.Client, others bool) error {
	text, err := node.Do(ctx, node.B().Info().Section("server", "replication", "memory").Build()).ToString()
	if err != nil {
		return fmt.Errorf("redisstore: the server %s cannot be checked: %w", addr, failed(err, false))
	}
	info := map[string]string{}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		info[name] = value
	}
	if info["role"] == "slave" && others {
		return nil
	}
	config, err := node.Do(ctx, node.B().ConfigGet().Parameter("maxmemory-policy", "appendonly", "appendfsync").Build()).
		AsStrMap()
	if err != nil {
		config = nil
	}
	policy := info["maxmemory_policy"]
	if p := config["maxmemory-policy"]; p != "" {
		policy = p
	}
	major, _, _ := strings.Cut(info["redis_version"], ".")
	version, err := strconv.Atoi(major)
	problem := ""
	switch {
	case err == nil && version < oldest:
		problem = fmt.Sprintf("is Redis %d: use Redis %d or newer, or Valkey", version, oldest)
	case info["role"] == "slave":
		problem = "is a replica, which only reads: connect to the primary"
	case policy != "" && policy != "noeviction":
		problem = fmt.Sprintf("has maxmemory-policy %s, and removes records when its memory is used up, so that operations "+
			"run again: set it to noeviction", policy)
	case s.promise == Durable && config["appendonly"] == "no":
		problem = "has appendonly no, and loses what it has confirmed when it ends, although the options say " +
			"redisstore.Durable: set appendonly to yes and appendfsync to always, or say redisstore.Lossy"
	case s.promise == Durable && config["appendfsync"] != "" && config["appendfsync"] != "always":
		problem = fmt.Sprintf("has appendfsync %s, and may lose what it has confirmed when it ends, although the options "+
			"say redisstore.Durable: set it to always, or say redisstore.Lossy", config["appendfsync"])
	default:
		return nil
	}
	return &protocol.ConfigError{What: "redisstore: the server " + addr, Problem: problem}
}
