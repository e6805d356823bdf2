package dynamodblocal

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

const stubContainer = "c0ffee0123456789"

// stubEngine answers like a Docker engine on a Unix socket. Its one container
// is a small HTTP server that answers like DynamoDB.
type stubEngine struct {
	address string

	// How this engine misbehaves.
	pullError  string // the pull's stream ends with this error
	bindHost   string // reported instead of 127.0.0.1
	dies       string // the container says this and ends at once
	startError string

	mu       sync.Mutex
	calls    []string
	hasImage bool
	created  map[string]any
	attached net.Conn
	running  *httptest.Server
	ended    chan struct{} // closed when the container has ended
}

func startStubEngine(t *testing.T) *stubEngine {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "engine.sock")
	listener, err := net.Listen("unix", socket)
	require.NoError(t, err)
	e := &stubEngine{address: "unix://" + socket, bindHost: "127.0.0.1", ended: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /_ping", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Api-Version", "1.47")
		_, _ = io.WriteString(w, "OK")
	})
	mux.HandleFunc("GET /v1.47/images/amazon/{image}/json", e.image)
	mux.HandleFunc("POST /v1.47/images/create", e.pull)
	mux.HandleFunc("POST /v1.47/containers/create", e.create)
	mux.HandleFunc("POST /v1.47/containers/{id}/attach", e.attach)
	mux.HandleFunc("POST /v1.47/containers/{id}/start", e.start)
	mux.HandleFunc("GET /v1.47/containers/{id}/json", e.inspect)
	mux.HandleFunc("DELETE /v1.47/containers/{id}", e.remove)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, _ := url.PathUnescape(r.URL.Path)
		e.mu.Lock()
		e.calls = append(e.calls, r.Method+" "+strings.TrimPrefix(path, "/v1.47"))
		e.mu.Unlock()
		mux.ServeHTTP(w, r)
	})}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(func() {
		_ = server.Close()
		e.end()
	})
	return e
}

func (e *stubEngine) image(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.hasImage || r.PathValue("image") != "dynamodb-local:"+imageTag {
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"message":"No such image"}`)
		return
	}
	_, _ = io.WriteString(w, `{"Id":"sha256:1"}`)
}

func (e *stubEngine) pull(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, _ = io.WriteString(w, `{"status":"Pulling from amazon/dynamodb-local"}`+"\r\n")
	if e.pullError != "" {
		_ = json.NewEncoder(w).Encode(map[string]any{"errorDetail": map[string]string{"message": e.pullError}, "error": e.pullError})
		return
	}
	e.hasImage = r.FormValue("fromImage") == imageRepository && r.FormValue("tag") == imageTag
	_, _ = io.WriteString(w, `{"status":"Status: Downloaded newer image"}`+"\r\n")
}

func (e *stubEngine) create(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := json.NewDecoder(r.Body).Decode(&e.created); err != nil || !e.hasImage {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusCreated)
	_, _ = fmt.Fprintf(w, `{"Id":%q,"Warnings":[]}`, stubContainer)
}

// attach takes the connection over. Its end is the end of the container's
// input, with which the container ends.
func (e *stubEngine) attach(w http.ResponseWriter, r *http.Request) {
	if r.Header.Get("Upgrade") != "tcp" || r.PathValue("id") != stubContainer {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	// Before the answer, after which the client goes on to start.
	e.mu.Lock()
	e.attached = conn
	e.mu.Unlock()
	_, _ = io.WriteString(conn, "HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n")
	_, _ = io.Copy(io.Discard, buffered)
	e.end()
}

func (e *stubEngine) start(w http.ResponseWriter, _ *http.Request) {
	// Runs last, when the lock is given back.
	defer func() {
		if e.dies != "" {
			e.end()
		}
	}()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.startError != "" {
		w.WriteHeader(http.StatusInternalServerError)
		_ = json.NewEncoder(w).Encode(map[string]string{"message": e.startError})
		return
	}
	e.running = httptest.NewServer(http.HandlerFunc(fakeDynamoDB))
	if e.dies != "" {
		frame := append([]byte{2, 0, 0, 0}, binary.BigEndian.AppendUint32(nil, uint32(len(e.dies)))...)
		_, _ = e.attached.Write(append(frame, e.dies...))
	}
	w.WriteHeader(http.StatusNoContent)
}

func (e *stubEngine) inspect(w http.ResponseWriter, _ *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_, port, _ := net.SplitHostPort(e.running.Listener.Addr().String())
	_, _ = fmt.Fprintf(w, `{"NetworkSettings":{"Ports":{"8000/tcp":[{"HostIp":%q,"HostPort":%q}]}}}`, e.bindHost, port)
}

func (e *stubEngine) remove(w http.ResponseWriter, r *http.Request) {
	select {
	case <-e.ended:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"message":"No such container"}`)
		return
	default:
	}
	if r.FormValue("force") != "1" {
		w.WriteHeader(http.StatusConflict)
		return
	}
	e.end()
	w.WriteHeader(http.StatusNoContent)
}

// end ends the container, once.
func (e *stubEngine) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.ended:
		return
	default:
		close(e.ended)
	}
	if e.attached != nil {
		_ = e.attached.Close()
	}
	if e.running != nil {
		e.running.Close()
	}
}

func (e *stubEngine) requireEnded(t *testing.T) {
	t.Helper()
	<-e.ended
	if e.running != nil {
		requireRefuses(t, e.running.URL)
	}
}
