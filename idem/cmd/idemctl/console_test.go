package main

import (
	"bufio"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// browser keeps cookies.
func browser(t *testing.T) *http.Client {
	jar, err := cookiejar.New(nil)
	require.NoError(t, err)
	return &http.Client{Jar: jar}
}

func fetch(t *testing.T, client *http.Client, address string) (int, string) {
	t.Helper()
	res, err := client.Get(address)
	require.NoError(t, err)
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	require.NoError(t, err)
	return res.StatusCode, string(body)
}

func TestTheConsoleNeedsTheKeyOfItsAddress(t *testing.T) {
	b := newRig(t)
	h, err := consoleOf(b.Reconciler(), "alice", "secret", slog.New(slog.DiscardHandler), b.Clock.Now)
	require.NoError(t, err)
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	client := browser(t)
	get := func(path string) (int, string) { return fetch(t, client, server.URL+path) }
	for _, path := range []string{"/", "/list", "/?key=guessed", "/?key="} {
		status, _ := get(path)
		require.Equal(t, http.StatusForbidden, status, path)
	}
	status, text := get("/?key=secret")
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, "<h1>Overview</h1>")
	require.Contains(t, text, "alice")
	require.NotContains(t, text, "secret")
	status, _ = get("/list")
	require.Equal(t, http.StatusOK, status)
}

func TestTheConsoleServesUntilItIsInterrupted(t *testing.T) {
	o := newTool(t)
	o.unknown(refund.Key("acme", "r-1"))
	cmd := o.command("console")
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	address, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^http://127\.0\.0\.1:\d+/\?key=\w{20,}\n$`, address)
	status, text := fetch(t, browser(t), strings.TrimSpace(address))
	require.Equal(t, http.StatusOK, status)
	require.Contains(t, text, `<dt>Open questions</dt><dd>1</dd>`)
	require.NoError(t, cmd.Process.Signal(os.Interrupt))
	require.NoError(t, cmd.Wait(), "Ctrl-C is no failure")
}
