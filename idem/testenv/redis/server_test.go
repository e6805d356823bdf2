package redis

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
)

// Set in a copy of this test binary that runs as another process.
const helperEnv = "REDIS_TEST_HELPER"

func TestMain(m *testing.M) { testmain.Run(m, testmain.Role{Env: helperEnv, Main: helper}) }

// helper starts a server, says where it has its files, and waits to be killed.
func helper(string) error {
	path, err := find()
	if err != nil {
		return err
	}
	s, err := start(path, nil)
	if err != nil {
		return err
	}
	fmt.Println(s.PID(), s.Folder)
	select {}
}

func TestKilledServerStartsAgainWithWhatItWrote(t *testing.T) {
	for mode, want := range map[string]string{"yes": "here", "no": ""} {
		s := Start(t, "appendonly="+mode, "appendfsync=always", "maxmemory=64mb", "maxmemory-policy=noeviction")
		childtest.RequireLoopbackOnly(t, s.PID(), s.Address())
		do(t, s, "SET what here")
		require.Equal(t, "here", do(t, s, "GET what"))
		require.Contains(t, do(t, s, "INFO memory"), "maxmemory_policy:noeviction")

		s.Kill()
		_, err := s.do("PING")
		require.Error(t, err)
		require.True(t, childtest.Ended(s.PID()))
		require.NoError(t, s.Start())
		require.Equal(t, want, do(t, s, "GET what"))

		s.Close()
		require.True(t, childtest.Ended(s.PID()))
		require.NoDirExists(t, s.Folder)
		s.Close()
	}
}

func TestServersAreApart(t *testing.T) {
	one, two := Start(t), Start(t)
	require.NotEqual(t, one.Address(), two.Address())
	do(t, one, "SET what here")
	require.Empty(t, do(t, two, "GET what"))
	one.Kill()
	require.Equal(t, "PONG", do(t, two, "PING"))
}

func TestReplicaOfKilledMasterTakesOver(t *testing.T) {
	t.Parallel()
	shards := Cluster(t, 3, 1)
	shard := shards[0]
	require.Contains(t, do(t, shard.Replicas[0], "INFO replication"), "role:slave")
	do(t, shard.Master, "SET {06S} here") // in slot 0
	require.Equal(t, "1", do(t, shard.Master, "WAIT 1 60000"))

	childtest.Loopback(t, shard.Master.PID()) // fails if the port of the cluster is open to other machines
	shard.Master.Kill()
	eventually := func(s *Server, says, command string) {
		t.Helper()
		require.Eventually(t, func() bool {
			said, err := s.do(command)
			return err == nil && strings.Contains(said, says)
		}, 2*time.Minute, 50*time.Millisecond, command)
	}
	eventually(shard.Replicas[0], "role:master", "INFO replication")
	for _, s := range []*Server{shards[1].Master, shards[2].Master, shard.Replicas[0]} {
		eventually(s, "cluster_state:ok", "CLUSTER INFO")
	}
	require.Equal(t, "here", do(t, shard.Replicas[0], "GET {06S}"))
	require.NoError(t, shard.Master.Start())
	eventually(shard.Master, "role:slave", "INFO replication")
	eventually(shard.Master, "master_link_status:up", "INFO replication")
}

func TestServerAndFolderEndWithTheTestProcess(t *testing.T) {
	Start(t)
	childtest.RequireEndsWithParent(t, helperEnv)
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	childtest.Programs(t, nil, nil)
	_, err := find()
	require.ErrorContains(t, err, "apt install redis-server")
	childtest.Programs(t, nil, map[string]string{"valkey-server": ""})
	path, err := find()
	require.NoError(t, err)
	require.Contains(t, path, "valkey-server")
}
