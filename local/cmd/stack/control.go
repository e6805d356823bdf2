package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/idem-go/idempotency/local/cloud"
)

// controlFile has the URL at which kill and freeze reach what runs. Only its owner reads it.
const controlFile = "control"

// serveControl accepts interruptions until the end of what runs.
func serveControl(r *cloud.Running, f folder) error {
	path := "/" + rand.Text()
	url, err := r.Serve(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		var i cloud.Interruption
		switch {
		case req.URL.Path != path:
			http.Error(w, "only kill and freeze come here", http.StatusForbidden)
			return
		case req.Method == http.MethodGet:
			fmt.Fprint(w, strings.Join(r.Names(), "\n"))
			return
		case json.NewDecoder(req.Body).Decode(&i) != nil:
			http.Error(w, "an interruption in JSON is missing", http.StatusBadRequest)
			return
		}
		name, err := r.Interrupt(i)
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		fmt.Fprintf(w, "%s: the next process that comes there is %s\n", name, i)
	}))
	if err != nil {
		return err
	}
	return os.WriteFile(f.path(controlFile), []byte(url+path), 0o600)
}

const interruptUsage = `local kill [flags] FUNCTION: kill a function that runs, with SIGKILL, while it calls DynamoDB
local freeze [flags] FUNCTION: stop it there until its time-out

FUNCTION is a name that local up has printed, or a part that no other has. Its next invocation that
makes the call is interrupted: the one that records how the attempt ended, or with -call
another one. Call 1 of an invocation claims the key, before the handler.

`

// interrupt asks what runs to interrupt a function: the commands kill and freeze.
func interrupt(ctx context.Context, command string, args []string, out io.Writer) error {
	i := cloud.Interruption{Freeze: command == "freeze"}
	cacheDir := ""
	flags := flag.NewFlagSet("local "+command, flag.ExitOnError)
	flags.IntVar(&i.Call, "call", 0, "at which call to DynamoDB of an invocation, from `1` (default: the one that "+
		"records how the attempt ended)")
	flags.BoolVar(&i.After, "after", false, "after DynamoDB has done it, before its answer (default: before it is sent)")
	flags.StringVar(&cacheDir, "cache", "", "as of local up")
	flags.Usage = func() {
		fmt.Fprint(os.Stderr, interruptUsage)
		flags.PrintDefaults()
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() != 1 {
		flags.Usage()
		os.Exit(2)
	}
	i.Function = flags.Arg(0)
	dir, err := runDir(cacheDir)
	if err != nil {
		return err
	}
	sweep(dir)
	all, _ := filepath.Glob(filepath.Join(dir, "*", controlFile)) // a bad pattern is its only error
	if len(all) == 0 {
		return errors.New("nothing runs here: start local up first")
	}
	var names []string
	var silent []error
	files := map[string]string{} // by the name of a function
	for _, file := range all {
		answer, err := ask(ctx, http.MethodGet, file, nil)
		if err != nil { // it starts, or it ends
			silent = append(silent, err)
			continue
		}
		for name := range strings.SplitSeq(answer, "\n") {
			names, files[name] = append(names, name), file
		}
	}
	if len(silent) == len(all) {
		return errors.Join(silent...)
	}
	if i.Function, err = cloud.OneOf(names, i.Function); err != nil {
		return err
	}
	body, err := json.Marshal(i)
	if err != nil {
		return err
	}
	answer, err := ask(ctx, http.MethodPost, files[i.Function], body)
	fmt.Fprint(out, answer)
	return err
}

// ask sends what runs a request.
func ask(ctx context.Context, method, file string, body []byte) (string, error) {
	url, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, method, string(url), bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		return "", errors.New(strings.TrimSpace(string(answer)))
	}
	return string(answer), err
}
