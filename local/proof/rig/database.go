package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"os"
	"strings"
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

	dir     string
	mu      sync.Mutex
	server  *child.Server
	address func() string // of the server that runs now
}

// NewDatabase starts one, which ends with the test. None is given by [dynamodblocal.EnvEndpoint], since it could not be
// killed.
func NewDatabase(tb testing.TB) *Database {
	tb.Helper()
	require.Empty(tb, os.Getenv(dynamodblocal.EnvEndpoint))
	d := &Database{dir: tb.TempDir()}
	d.address = func() string {
		d.mu.Lock()
		defer d.mu.Unlock()
		return d.server.Endpoint()[len("http://"):]
	}
	// A file in memory outlives the process too, and a busy disk is slow.
	if dir, err := os.MkdirTemp("/dev/shm", "idem-"); err == nil {
		d.dir = dir
		tb.Cleanup(func() { _ = os.RemoveAll(dir) })
	}
	childtest.Need(tb, "DynamoDB Local", func() (*Database, error) { return d, d.start() })
	front := httptest.NewServer(d.front())
	d.URL = front.URL
	tb.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
		_ = d.server.Close()
	})
	return d
}

// front is the way to the server that runs now.
func (d *Database) front() http.Handler {
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL.Scheme, r.Out.URL.Host = "http", d.address()
			r.Out.Host = r.In.Host // it is part of the signature
		},
		Transport:      transport,
		ModifyResponse: committed,
		ErrorHandler:   func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// transport keeps a connection for each caller of a crowd.
var transport = func() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	return t
}()

// committed waits until a transaction that is confirmed is on disk. DynamoDB Local replies before it commits: it
// leaves the commit to the thread that does all SQL, one statement after the other. So a question that this thread
// answers is answered after the commit, and a reply that a kill overtakes reaches no client.
func committed(r *http.Response) error {
	if r.StatusCode != http.StatusOK || !strings.HasSuffix(r.Request.Header.Get(target), ".TransactWriteItems") {
		return nil
	}
	ask, err := http.NewRequestWithContext(r.Request.Context(), http.MethodPost, r.Request.URL.String(),
		strings.NewReader("{}"))
	if err != nil {
		return err
	}
	ask.Header.Set(target, "DynamoDB_20120810.ListTables")
	for _, name := range []string{"Authorization", "Content-Type", "X-Amz-Date"} {
		ask.Header.Set(name, r.Request.Header.Get(name))
	}
	answer, err := transport.RoundTrip(ask)
	if err != nil {
		return err
	}
	defer answer.Body.Close() // read or not
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("wait for a commit: %s", answer.Status)
	}
	_, err = io.Copy(io.Discard, answer.Body)
	return err
}

// target is the header with the operation.
const target = "X-Amz-Target"

func (d *Database) start() (err error) {
	server, err := dynamodblocal.Start(context.Background(), &dynamodblocal.Options{DataDir: d.dir})
	d.mu.Lock()
	defer d.mu.Unlock()
	d.server = server
	return err
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
