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
	"net/url"
	"strings"
	"time"
)

// failed is the trailer of an answer that says, escaped, why the command failed.
const failed = "Command-Failed"

// control runs commands for other processes, which know the secret. A command's flags
// come as JSON, and what it prints is the answer's body.
func (s *stack) control(secret string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /ping", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /{command}", func(w http.ResponseWriter, r *http.Request) {
		c, ok := commandNamed(r.PathValue("command"))
		if !ok {
			http.NotFound(w, r)
			return
		}
		t := c.task()
		if err := json.NewDecoder(r.Body).Decode(t); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if err := t.run(r.Context(), s, flushing{w}); err != nil {
			w.Header().Set(http.TrailerPrefix+failed, url.QueryEscape(err.Error()))
		}
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+secret)) != 1 {
			http.Error(w, "wrong secret", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// flushing sends every piece at once, for commands that go on.
type flushing struct{ http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	return n, errors.Join(err, http.NewResponseController(f.ResponseWriter).Flush())
}

// ask has the running stack run a command, and prints what it prints.
func (n note) ask(ctx context.Context, command string, t task, out io.Writer) error {
	flags, err := json.Marshal(t)
	if err != nil {
		return err
	}
	res, err := n.call(ctx, http.MethodPost, command, flags)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(out, res.Body); errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the running stack (process %d) has ended meanwhile", n.PID)
	} else if err != nil {
		return err
	}
	if why, _ := url.QueryUnescape(res.Trailer.Get(failed)); why != "" {
		return errors.New(why)
	}
	return nil
}

func (n note) call(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, n.Control+"/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+n.Secret)
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("the running stack (process %d) does not answer: %w", n.PID, err)
	}
	if res.StatusCode == http.StatusOK {
		return res, nil
	}
	why, _ := io.ReadAll(res.Body) // what has come says enough
	return nil, errors.Join(errors.New(strings.TrimSpace(string(why))), res.Body.Close())
}

// running finds the stack that answers.
func running(ctx context.Context, cacheDir string) (note, error) {
	return findStack(cacheDir, func(n note) bool {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		res, err := n.call(ctx, http.MethodGet, "ping", nil)
		if err != nil {
			return false
		}
		return res.Body.Close() == nil
	})
}

func newSecret() string { return rand.Text() }
