package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Shard is a master of a cluster, as it is at first, with its replicas.
type Shard struct {
	Master   *Server
	Replicas []*Server
}

// slots is how many hash slots a cluster has.
const slots = 16384

// Cluster starts so many masters, which share the slots evenly, each with so many replicas, and waits
// until every node says that the cluster works and every replica has what its master has. A replica
// takes over when its master has not answered for 2 s and most masters agree: that takes at least
// three. Otherwise a node is as one of [Start]. One that is killed and started again has its place
// in the cluster, as a replica of the node that took over.
func Cluster(tb testing.TB, masters, replicas int, settings ...string) []Shard {
	tb.Helper()
	settings = append([]string{"cluster-enabled=yes", "cluster-node-timeout=2000", "cluster-announce-ip=127.0.0.1",
		"repl-diskless-sync-delay=0"}, settings...)
	shards := make([]Shard, masters)
	var nodes []*Server
	start := func() *Server {
		s := Start(tb, settings...)
		// Different epochs, as redis-cli does: nodes with equal ones would first have to settle that.
		do(tb, s, "CLUSTER SET-CONFIG-EPOCH %d", len(nodes)+1)
		for _, other := range nodes {
			do(tb, s, "CLUSTER MEET 127.0.0.1 %d", other.Port)
		}
		nodes = append(nodes, s)
		return s
	}
	for i := range shards {
		shards[i].Master = start()
		do(tb, shards[i].Master, "CLUSTER ADDSLOTSRANGE %d %d", i*slots/masters, (i+1)*slots/masters-1)
		for range replicas {
			shards[i].Replicas = append(shards[i].Replicas, start())
		}
	}
	eventually := func(s *Server, says, format string, args ...any) {
		tb.Helper()
		var said string
		var err error
		require.Eventually(tb, func() bool {
			said, err = s.do(format, args...)
			return err == nil && strings.Contains(said, says)
		}, time.Minute, 20*time.Millisecond, "%s does not reply %q to %s", s.Address(), says, format)
	}
	for _, s := range nodes {
		eventually(s, fmt.Sprintf("cluster_known_nodes:%d\r\n", len(nodes)), "CLUSTER INFO")
	}
	for _, shard := range shards {
		id := do(tb, shard.Master, "CLUSTER MYID")
		for _, s := range shard.Replicas {
			eventually(s, "OK", "CLUSTER REPLICATE %s", id)
		}
	}
	for _, shard := range shards {
		eventually(shard.Master, "cluster_state:ok", "CLUSTER INFO")
		for _, s := range shard.Replicas {
			eventually(s, "cluster_state:ok", "CLUSTER INFO")
			eventually(s, "master_link_status:up", "INFO replication")
		}
	}
	return shards
}

func do(tb testing.TB, s *Server, format string, args ...any) string {
	tb.Helper()
	said, err := s.do(format, args...)
	require.NoError(tb, err)
	return said
}
