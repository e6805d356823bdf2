package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem/protocol"
)

// oldest is the oldest major version of Redis that it works with. A Valkey says that it is a Redis 7.
const oldest = 7

// Check returns a [*protocol.ConfigError] if a server is too old, if it is a replica, if it removes records when its
// memory is used up or because its clock is ahead of the caller's, or if it is one of your own that is not [Durable]
// although the options say so. It is two round trips to each node, and writes nothing. What a server does not say is
// not known, and no error: managed ones have no CONFIG, by which a server of your own is known. A user without
// +config|get learns of it only whether it has appendonly.
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
	text, err := node.Do(ctx, node.B().Info().Section("server", "replication", "memory", "persistence").Build()).ToString()
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
	config, err := node.Do(ctx, node.B().ConfigGet().Parameter("maxmemory-policy", "appendonly", "appendfsync",
		"no-appendfsync-on-rewrite", "cluster-replica-no-failover").Build()).AsStrMap()
	if err != nil {
		config = nil
		answer, ok := errors.AsType[*valkey.ValkeyError](err)
		// A managed server has no CONFIG, and no file of its own also if it keeps everything.
		if ok && strings.HasPrefix(answer.Error(), "NOPERM") && !strings.HasPrefix(info["os"], "Amazon") &&
			info["aof_enabled"] == "0" {
			config = map[string]string{"appendonly": "no"}
		}
	}
	policy := info["maxmemory_policy"]
	if p := config["maxmemory-policy"]; p != "" {
		policy = p
	}
	major, _, _ := strings.Cut(info["redis_version"], ".")
	version, err := strconv.Atoi(major)
	usec, _ := strconv.ParseInt(info["server_time_usec"], 10, 64)
	ahead := time.Until(time.UnixMicro(usec))
	durable, mode, problem := s.promise == Durable, s.driver.client.Mode(), ""
	switch {
	case err == nil && version < oldest:
		problem = fmt.Sprintf("is Redis %d: use Redis %d or newer, or Valkey", version, oldest)
	case info["role"] == "slave":
		problem = "is a replica, which only reads: connect to the primary"
	case policy != "" && policy != "noeviction":
		problem = fmt.Sprintf("has maxmemory-policy %s, and removes records when its memory is used up, so that operations "+
			"run again: set it to noeviction", policy)
	case ahead > slack:
		problem = fmt.Sprintf("has a clock that is %v ahead of this one's, and removes records before they have expired, so "+
			"that operations run again: set both to the time", ahead.Round(time.Second))
	case durable && (mode == valkey.ClientModeSentinel || mode == valkey.ClientModeCluster &&
		info["connected_slaves"] != "0" && config["cluster-replica-no-failover"] == "no"):
		problem = "has a replica that takes over, and that may lack what was confirmed, although the options say " +
			"redisstore.Durable: leave replicas out, set cluster-replica-no-failover to yes on all nodes, or say " +
			"redisstore.Lossy"
	case durable && config["appendonly"] == "no":
		problem = "has appendonly no, and loses what it has confirmed when it ends, although the options say " +
			"redisstore.Durable: set appendonly to yes and appendfsync to always, or say redisstore.Lossy"
	case durable && config["no-appendfsync-on-rewrite"] == "yes":
		problem = "has no-appendfsync-on-rewrite yes, and may lose what it has confirmed when it ends, although the " +
			"options say redisstore.Durable: set it to no, or say redisstore.Lossy"
	case durable && config["appendfsync"] != "" && config["appendfsync"] != "always":
		problem = fmt.Sprintf("has appendfsync %s, and may lose what it has confirmed when it ends, although the options "+
			"say redisstore.Durable: set it to always, or say redisstore.Lossy", config["appendfsync"])
	default:
		return nil
	}
	return &protocol.ConfigError{What: "redisstore: the server " + addr, Problem: problem}
}
