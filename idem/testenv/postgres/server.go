package postgres

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
)

// EnvRequire set to 1 makes a test fail that would be skipped because there is no Postgres.
const EnvRequire = "IDEM_REQUIRE_POSTGRES"

// Server is a Postgres. It can be killed and started again: its URL and its data stay.
type Server struct {
	*child.Daemon
	password string
}

// Start starts a server that ends with the test. Settings are those of postgresql.conf, such as
// "synchronous_commit=off". fsync is off unless one of them is "fsync=on".
//
// If there is no Postgres, the test is skipped with the reason, or fails if IDEM_REQUIRE_POSTGRES is
// 1. Call it from the test's own goroutine.
func Start(tb testing.TB, settings ...string) *Server {
	tb.Helper()
	s, err := start(childtest.NeedFor(tb, EnvRequire, "Postgres", installed), settings)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(s.Close)
	return s
}

// Open starts a server for a program that is no test. It ends with the process, or by Close.
func Open(settings ...string) (*Server, error) {
	p, err := installed()
	if err != nil {
		return nil, fmt.Errorf("there is no Postgres: %w", err)
	}
	return start(p, settings)
}

var (
	installed = sync.OnceValues(func() (programs, error) { return find(context.Background(), "", debian) })
	shared    = sync.OnceValues(func() (*Server, error) {
		p, err := installed()
		if err != nil {
			return nil, err
		}
		return start(p, nil)
	})
)

// Shared is the server that all tests of the process share, each with a [Server.Database] of its
// own. It starts at the first call and ends with the process: do not stop it. Otherwise it is as
// one of [Start].
func Shared(tb testing.TB) *Server {
	tb.Helper()
	childtest.NeedFor(tb, EnvRequire, "Postgres", installed)
	s, err := shared()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

// user is the superuser, and database one that is always there.
const user, database = "postgres", "postgres"

func start(p programs, settings []string) (_ *Server, err error) {
	d, err := child.NewDaemon(p.source, "idem-postgres-")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if os.Geteuid() == 0 {
		if err := os.Chown(d.Folder, child.Nobody, child.Nobody); err != nil {
			return nil, err
		}
	}
	s := &Server{d, rand.Text()}
	file, data := filepath.Join(d.Folder, "password"), filepath.Join(d.Folder, "data")
	if err := os.WriteFile(file, []byte(s.password), 0o644); err != nil {
		return nil, err
	}
	if err := p.linkLibraries(d.Folder); err != nil {
		return nil, err
	}
	begin := p.command(d.Folder, "initdb", "--pgdata="+data, "--username="+user, "--auth=password", "--pwfile="+file,
		"--encoding=UTF8", "--locale=C", "--wal-segsize=1", "--no-sync", "--no-instructions")
	if out, err := begin.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("initdb of %s: %w:\n%s", p.source, err, out)
	}
	// Memory that is shared in files of the folder goes with it. The empty folder of sockets is none.
	args := []string{"-D", data}
	for _, setting := range append([]string{"listen_addresses=127.0.0.1", "port=" + strconv.Itoa(d.Port),
		"unix_socket_directories=", "dynamic_shared_memory_type=mmap", "fsync=off"}, settings...) {
		args = append(args, "-c", setting)
	}
	d.Command = func() *exec.Cmd { return p.command(d.Folder, "postgres", args...) }
	d.Ready = func() error { _, err := s.query(database, "SELECT 1"); return err }
	return s, d.Start()
}

// Start starts the server again.
func (s *Server) Start() error {
	// Who looks at a process that ends, in /proc, keeps its memory for as long.
	for try := 0; ; try++ {
		err := s.Daemon.Start()
		if err == nil || try == 100 || !strings.Contains(err.Error(), "shared memory block") {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// URL is that of the database postgres, for its superuser.
func (s *Server) URL() string { return s.url(database) }

func (s *Server) url(database string) string {
	return fmt.Sprintf("postgres://%s:%s@%s/%s?sslmode=disable", user, s.password, s.Address(), database)
}

// Database creates an empty database and returns its URL. It is dropped at the end of the test, also
// while it has connections. Call it from the test's own goroutine; several tests may call it at once.
func (s *Server) Database(tb testing.TB) string {
	tb.Helper()
	name := "test_" + strings.ToLower(rand.Text())
	if _, err := s.query(database, "CREATE DATABASE "+name); err != nil {
		tb.Fatalf("create a database: %v", err)
	}
	// Best effort: the test may have stopped the server, and all go with the folder.
	tb.Cleanup(func() { _, _ = s.query(database, "DROP DATABASE "+name+" WITH (FORCE)") })
	return s.url(name)
}

// command runs a program of Postgres.
func (p programs) command(folder, name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(p.bin, name), args...)
	cmd.Dir = folder
	paths := filepath.Join(folder, libraries) + ":" + filepath.Join(p.bin, "..", "lib")
	cmd.Env = append(os.Environ(), "LC_ALL=C", "LD_LIBRARY_PATH="+paths)
	// At a SIGQUIT the server ends its own processes at once, and deletes the memory that they share.
	cmd.SysProcAttr = child.Unprivileged(syscall.SIGQUIT)
	return cmd
}
