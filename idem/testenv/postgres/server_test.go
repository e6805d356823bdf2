package postgres

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/cache"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
)

// Set in a copy of this test binary that runs as another process.
const helperEnv = "POSTGRES_TEST_HELPER"

func TestMain(m *testing.M) { testmain.Run(m, testmain.Role{Env: helperEnv, Main: helper}) }

// helper starts a server, says where it has its files, and waits to be killed.
func helper(string) error {
	s, err := shared()
	if err != nil {
		return err
	}
	fmt.Println(s.PID(), s.Folder)
	select {}
}

func rows(t *testing.T, s *Server, url, sql string) []string {
	t.Helper()
	name, _, _ := strings.Cut(filepath.Base(url), "?")
	got, err := s.query(name, sql)
	require.NoError(t, err)
	return got
}

func TestKilledServerStartsAgainWithItsData(t *testing.T) {
	s := Start(t, "fsync=on", "max_connections=7")
	childtest.RequireLoopbackOnly(t, s.PID(), s.Address())
	url := s.Database(t)
	require.Regexp(t, `^postgres://postgres:\w+@127\.0\.0\.1:\d+/test_\w+\?sslmode=disable$`, url)
	rows(t, s, url, "CREATE TABLE kept AS SELECT 'here' AS what")
	// One that is busy does not see by itself that its server has ended.
	ended := make(chan error, 1)
	go func() {
		_, err := s.query(database, "DO 'BEGIN LOOP END LOOP; END'")
		ended <- err
	}()
	const busy = "SELECT pid FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active'"
	require.Eventually(t, func() bool { return len(rows(t, s, url, busy)) == 1 }, time.Minute, 10*time.Millisecond)
	pids := []int{s.PID()}
	for _, pid := range rows(t, s, url, "SELECT pid FROM pg_stat_activity") {
		n, err := strconv.Atoi(pid)
		require.NoError(t, err)
		pids = append(pids, n)
	}
	require.Greater(t, len(pids), 3)
	require.ErrorContains(t, s.Start(), "runs already")

	s.Kill()
	s.Kill()
	require.Error(t, <-ended)
	_, err := s.query(database, "SELECT 1")
	require.Error(t, err)
	for _, pid := range pids {
		childtest.RequireEnded(t, pid)
	}
	require.NoError(t, s.Start())
	require.Equal(t, []string{"here"}, rows(t, s, url, "SELECT what FROM kept"))
	require.Equal(t, []string{"7"}, rows(t, s, url, "SHOW max_connections"))
	require.Equal(t, []string{"on"}, rows(t, s, url, "SHOW fsync"))

	s.Stop()
	s.Stop()
	require.True(t, childtest.Ended(s.PID()))
	require.NoError(t, s.Start())
	require.Equal(t, []string{"here"}, rows(t, s, url, "SELECT what FROM kept"))
}

func TestServersAndDatabasesAreApart(t *testing.T) {
	one, two := Shared(t), Start(t)
	require.Same(t, one, Shared(t))
	require.NotEqual(t, one.URL(), two.URL())
	require.Equal(t, []string{"off"}, rows(t, one, one.URL(), "SHOW fsync"))
	a, b := one.Database(t), one.Database(t)
	rows(t, one, a, "CREATE TABLE kept (id text PRIMARY KEY)")
	require.Equal(t, []string{"1"}, rows(t, one, a, "SELECT count(*) FROM pg_tables WHERE tablename = 'kept'"))
	require.Equal(t, []string{"0"}, rows(t, one, b, "SELECT count(*) FROM pg_tables WHERE tablename = 'kept'"))
	require.Equal(t, []string{"3"}, rows(t, one, a, "SELECT count(*) FROM pg_database WHERE NOT datistemplate"))
	var dropped string
	t.Run("test", func(t *testing.T) { dropped = two.Database(t) })
	require.Equal(t, []string{database},
		rows(t, two, two.URL(), "SELECT datname FROM pg_database WHERE NOT datistemplate"))
	_, err := two.query(filepath.Base(dropped), "SELECT 1")
	require.ErrorContains(t, err, "3D000")

	stranger := &Server{Daemon: one.Daemon, password: "guessed"}
	_, err = stranger.query(database, "SELECT 1")
	require.ErrorContains(t, err, "28P01")
}

func TestServerAndFolderEndWithTheTestProcess(t *testing.T) {
	Shared(t)
	childtest.RequireEndsWithParent(t, helperEnv)
}

func TestWrongSettingShowsItsReason(t *testing.T) {
	Shared(t)
	p, err := installed()
	require.NoError(t, err)
	_, err = start(p, []string{"max_connections=many"})
	require.ErrorContains(t, err, "ended before it answered")
	require.ErrorContains(t, err, "many")
}

func TestInstalledPostgresIsUsedWithoutNPM(t *testing.T) {
	found, err := filepath.Glob(debian)
	require.NoError(t, err)
	if len(found) == 0 {
		t.Skip("needs Debian's package postgresql")
	}
	childtest.Programs(t, nil, nil)
	p, err := find(t.Context(), t.TempDir(), debian)
	require.NoError(t, err)
	require.Equal(t, "the installed "+found[len(found)-1], p.source)
	s, err := start(p, nil)
	require.NoError(t, err)
	defer s.Close()
	require.Len(t, rows(t, s, s.Database(t), "SELECT version()"), 1)
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	childtest.Programs(t, nil, nil)
	t.Setenv(cache.Env, t.TempDir())
	_, err := find(t.Context(), "", filepath.Join(t.TempDir(), "*"))
	require.ErrorContains(t, err, "apt install postgresql")
	require.ErrorContains(t, err, Package.String())
}
