package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
)

// failed is the trailer of an answer that says, escaped, why the command failed.
const failed = "Command-Failed"

// control runs commands for other processes. A command's flags come as JSON, and its output
// is the answer's body.
func (s *stack) control() http.Handler {
	mux := http.NewServeMux()
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
	return mux
}

// flushing sends every piece at once, for commands that keep printing.
type flushing struct{ http.ResponseWriter }

func (f flushing) Write(p []byte) (int, error) {
	n, err := f.ResponseWriter.Write(p)
	return n, errors.Join(err, http.NewResponseController(f.ResponseWriter).Flush())
}

// ask lets the running stack run a command, and prints its output.
func ask(ctx context.Context, socket, command string, t task, out io.Writer) error {
	flags, err := json.Marshal(t)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://stack/"+command, bytes.NewReader(flags))
	if err != nil {
		return err
	}
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}
	res, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("the running stack does not answer: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("the running stack answers %s; is it of another version?", res.Status)
	}
	if _, err := io.Copy(out, res.Body); errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the running stack ended before it had answered: start it again with `go run ./local`")
	} else if err != nil {
		return err
	}
	if why, _ := url.QueryUnescape(res.Trailer.Get(failed)); why != "" {
		return errors.New(why)
	}
	return nil
}
