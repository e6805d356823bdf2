package rig

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
)

// Database is a DynamoDB Local of one test. Its data is on disk, so that it may be killed and started again.
type Database struct {
	URL string // stays the same

	dir    string
	mu     sync.Mutex
	server *child.Server
}

// NewDatabase starts one, which ends with the test. The test is not parallel.
func NewDatabase(tb testing.TB) *Database {
	tb.Helper()
	tb.Setenv(dynamodblocal.EnvEndpoint, "") // one that is given cannot be killed
	d := &Database{dir: tb.TempDir()}
	// A file in memory outlives the process too, and a busy disk is slow.
	if dir, err := os.MkdirTemp("/dev/shm", "idem-"); err == nil {
		d.dir = dir
		tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	childtest.Need(tb, "DynamoDB Local", func() (*Database, error) { return d, d.start() })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(tb, err)
	d.URL = "http://" + listener.Addr().String()
	tb.Cleanup(func() {
		_ = listener.Close()
		_ = d.server.Close()
	})
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go d.forward(client)
		}
	}()
	return d
}

func (d *Database) start() (err error) {
	server, err := dynamodblocal.Start(context.Background(), &dynamodblocal.Options{DataDir: d.dir})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server = server
	return err
}

// forward brings a connection to the server that runs now, until either of them ends it.
func (d *Database) forward(client net.Conn) {
	defer client.Close()
	d.mu.Lock()
	address := d.server.Endpoint()[len("http://"):]
	d.mu.Unlock()
	server, err := net.Dial("tcp", address)
	if err != nil {
		return
	}
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, client)
	}()
	_, _ = io.Copy(client, server)
}

// Kill kills the server in whatever it does, and starts it again.
func (d *Database) Kill() error {
	if err := syscall.Kill(d.server.PID(), syscall.SIGKILL); err != nil {
		return err
	}
	<-d.server.Ended()
	return d.start()
}

// Freeze stops the server while f runs.
func (d *Database) Freeze(f func()) error { return Freeze(d.server.PID(), f) }

// Freeze stops a process while f runs. It may be dead.
func Freeze(pid int, f func()) error {
	if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	f()
	if err := syscall.Kill(pid, syscall.SIGCONT); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
