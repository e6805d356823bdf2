package cloud

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
)

// delve is what the long version debugs with.
const delve = "github.com/go-delve/delve/cmd/dlv@v1.27.2"

// A function is run under a debugger, and nothing around it has a short time-out.
func TestDebug(t *testing.T) {
	p, err := read(t, shop, nil)
	require.NoError(t, err)
	require.NoError(t, p.debug("Charge"))
	require.Equal(t, debugTimeout, p.Functions[0].Timeout)
	require.Equal(t, 1, p.Functions[0].MaxInstances)
	require.Equal(t, debugTimeout, p.APIs[0].timeout)
	require.Equal(t, "900", p.Queues[1].Attributes["VisibilityTimeout"])
	require.EqualError(t, p.debug("Refund"), `"Refund" names 0 functions: there are Shop-Charge`)

	dir := t.TempDir()
	dlv, args := filepath.Join(dir, "dlv"), filepath.Join(dir, "args")
	script := "#!/bin/sh\necho \"$@\" >'" + args + "'\nfor binary; do :; done\nexec \"$binary\"\n"
	require.NoError(t, os.WriteFile(dlv, []byte(script), 0o700))
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	r, out := started(t, open(), Options{Debug: "Charge"})
	require.Regexp(t, `Shop-Charge waits for a debugger when it is invoked: dlv connect 127\.0\.0\.1:\d+`, out)
	require.Equal(t, "sent", post(t, r.Endpoints.APIs["Shop-Api"]+"/charges", "{}"), out)
	given, err := os.ReadFile(args)
	require.NoError(t, err)
	require.Regexp(t, `^exec --headless .*--listen=127\.0\.0\.1:\d+ /`, string(given))

	goAlone := t.TempDir()
	tool, err := exec.LookPath("go")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(tool, filepath.Join(goAlone, "go")))
	t.Setenv("PATH", goAlone)
	_, err = (&Running{}).debugger(p.Functions[0], "charge")
	require.ErrorContains(t, err, "dlv is not on PATH: go install github.com/go-delve/delve/cmd/dlv@latest")
}

// Delve itself stops a function at its handler, for as long as it wants.
func TestDebugWithDelve(t *testing.T) {
	if os.Getenv("IDEM_LONG") != "1" {
		t.Skip("compiling Delve takes a minute: IDEM_LONG=1 does it")
	}
	dir := t.TempDir()
	install := exec.CommandContext(t.Context(), "go", "install", delve)
	install.Env = append(os.Environ(), "GOBIN="+dir, "GOFLAGS=")
	said, err := install.CombinedOutput()
	require.NoError(t, err, "%s", said)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	r, out := started(t, open(), Options{Debug: "Charge"})
	answer := make(chan string, 1)
	go func() { answer <- post(t, r.Endpoints.APIs["Shop-Api"]+"/charges", `{"order":1}`) }()
	at := regexp.MustCompile(`dlv connect (\S+)`).FindStringSubmatch(out.String())[1]
	commands := filepath.Join(dir, "commands")
	script := "break main.handle\ncontinue\nprint len(event)\nclearall\ncontinue\n"
	require.NoError(t, os.WriteFile(commands, []byte(script), 0o600))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	seen := &childtest.Output{}
	require.Eventually(t, func() bool { // it listens once the function is invoked
		client := exec.CommandContext(ctx, filepath.Join(dir, "dlv"), "connect", "--init", commands, at)
		client.Stdout, client.Stderr = seen, seen
		done := make(chan error, 1)
		if client.Start() != nil {
			return false
		}
		go func() { done <- client.Wait() }()
		select {
		case got := <-answer:
			require.Equal(t, "sent", got, out)
			return true
		case <-done:
			return false
		}
	}, minute, tick, seen)
	require.Regexp(t, `main\.handle\(\)`, seen)
	require.Regexp(t, `(?m)^[1-9]\d\d+$`, seen, "the length of the event")
}
