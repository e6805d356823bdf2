package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// delivery is what became of one event that a command has delivered.
type delivery struct {
	RequestID string          `json:"requestId"`
	PID       int             `json:"pid"`
	Cold      bool            `json:"cold,omitempty"`
	Duration  time.Duration   `json:"duration"`
	Payload   json.RawMessage `json:"payload,omitempty"`
	Error     string          `json:"error,omitempty"` // of the function
	// Lines that the function logged about this invocation.
	Lines []string `json:"lines,omitempty"`
}

// tokenLifetime is long enough for a day's work.
const tokenLifetime = 12 * time.Hour

// control serves commands of other processes that know the secret.
func (s *stack) control(secret string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ping", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /tokens/{tenant}", func(w http.ResponseWriter, r *http.Request) {
		token, err := s.issuer.Token(r.PathValue("tenant"), nil, tokenLifetime)
		send(w, token, err)
	})
	mux.HandleFunc("POST /functions/{name}/invocations", func(w http.ResponseWriter, r *http.Request) {
		pool, ok := s.pools[r.PathValue("name")]
		if !ok {
			http.Error(w, fmt.Sprintf("there is no function %q; there are: %s", r.PathValue("name"), functionNames()), http.StatusNotFound)
			return
		}
		event, err := io.ReadAll(http.MaxBytesReader(w, r.Body, runtime.MaxEventBytes+1))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		d, err := deliver(r.Context(), pool, event)
		send(w, d, err)
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+secret)) != 1 {
			http.Error(w, "wrong secret", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func send(w http.ResponseWriter, v any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the caller has left
}

func deliver(ctx context.Context, pool *runtime.Pool, event []byte) (delivery, error) {
	res, err := pool.Invoke(ctx, event, nil)
	if err != nil {
		return delivery{}, err
	}
	d := delivery{RequestID: res.RequestID, PID: res.PID, Cold: res.ColdStart, Duration: res.Duration}
	if res.Error != nil {
		d.Error = res.Error.Error()
	} else {
		d.Payload = res.Payload
	}
	d.Lines = linesOf(ctx, pool, res)
	return d, nil
}

// The last lines of an invocation may still be on their way through the pipe when
// its answer has come: so long it is waited for the first, and so many looks without
// a new one end the wait.
const (
	logPatience = time.Second
	logLook     = 5 * time.Millisecond
	logQuiet    = 4
)

// linesOf returns what an instance has written about one invocation. A function
// that names no request in its lines has none.
func linesOf(ctx context.Context, pool *runtime.Pool, res runtime.Result) (lines []string) {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	for quiet := 0; quiet < logQuiet; {
		out, err := pool.Output(res.PID)
		if err != nil {
			return lines
		}
		before := len(lines)
		lines = nil
		for _, line := range append(out.Stdout, out.Stderr...) {
			if strings.Contains(line, res.RequestID) {
				lines = append(lines, line)
			}
		}
		if quiet++; len(lines) == 0 || len(lines) != before {
			quiet = 0
		}
		select {
		case <-ctx.Done():
			return lines
		case <-time.After(logLook):
		}
	}
	return lines
}

// ask calls the control of a running stack. into may be nil.
func (n note) ask(ctx context.Context, method, path string, body []byte, into any) error {
	req, err := http.NewRequestWithContext(ctx, method, n.Control+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+n.Secret)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the running stack (process %d) does not answer: %w", n.PID, err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	switch {
	case err != nil:
		return fmt.Errorf("the running stack (process %d) has ended meanwhile: %w", n.PID, err)
	case res.StatusCode != http.StatusOK:
		return errors.New(strings.TrimSpace(string(raw)))
	case into == nil:
		return nil
	}
	return json.Unmarshal(raw, into)
}

// running finds the stack that answers.
func running(ctx context.Context, cacheDir string) (note, error) {
	return findStack(cacheDir, func(n note) bool {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		return n.ask(ctx, http.MethodGet, "/ping", nil, nil) == nil
	})
}

func newSecret() string { return rand.Text() }
