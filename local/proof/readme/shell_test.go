package readme

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/schema"
)

var (
	block  = regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```$")
	target = regexp.MustCompile(`(?m)^([a-z%-]+):`)
)

// commands are the lines of a page's blocks without a language, but for drawings.
// Lines that a backslash, or the body of a loop, continues are one.
func commands(page string) (all []string) {
	text := strings.NewReplacer("\\\n", " ", "; do\n", "; do ").Replace(page)
	for _, m := range block.FindAllStringSubmatch(text, -1) {
		if m[1] != "" || strings.ContainsAny(m[2], "─│▶►") {
			continue
		}
		for line := range strings.Lines(m[2]) {
			line, _, _ = strings.Cut(line, " #")
			if line = strings.TrimSpace(line); line != "" && line != "done" {
				all = append(all, line)
			}
		}
	}
	return all
}

// Every command of a page names what there is: a target, a command with its flags, a
// package, the index. What a client sends is sent.
func TestCommandsOfPages(t *testing.T) {
	targets := map[string]bool{}
	for _, m := range target.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		targets[m[1]] = true
	}
	seen := 0
	for _, page := range pages(t) {
		for _, line := range commands(read(t, page)) {
			seen++
			t.Run(page+"/"+line, func(t *testing.T) {
				words := strings.Fields(line)
				switch words[0] {
				case "make":
					require.True(t, targets[words[1]], "there is no target %s", words[1])
				case "go":
					checkGo(t, words[1:])
				case "curl":
					checkCurl(t, line)
				case "for":
					require.Contains(t, line, "aws dynamodb query")
					require.Contains(t, line, "--index-name "+schema.OpenIndex+" ")
					require.Contains(t, line, "'"+schema.OpenShard+" = :s'")
					require.Contains(t, line, "'Items[]."+schema.PK+".S'")
				case "aws":
					require.Contains(t, line, "aws dynamodb query")
					require.Contains(t, line, "'"+schema.PK+" = :id AND begins_with("+schema.SK+", :audit)'")
					require.Contains(t, line, `":audit": {"S": "`+schema.AuditSK+`"}`)
				default:
					t.Errorf("nothing is known of %q: check it here", words[0])
				}
			})
		}
	}
	require.Greater(t, seen, 10)
}

func checkGo(t *testing.T, words []string) {
	switch words[0] {
	case "get":
		require.Len(t, words, 2)
		got, latest := strings.CutSuffix(words[1], "@latest")
		require.True(t, latest, words[1])
		out, err := exec.Command("go", "list", "-m", got).CombinedOutput()
		require.NoError(t, err, "%s is no module: %s", got, out)
		return
	case "test":
		for _, pkg := range words[1:] {
			if strings.HasPrefix(pkg, "./") {
				require.DirExists(t, filepath.Join(root, strings.TrimSuffix(pkg, "/...")))
			}
		}
		return
	}
	require.Equal(t, "run", words[0])
	out, err := exec.Command("go", "list", "-C", root, "-f", "{{.Name}}", words[1]).CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, "main", strings.TrimSpace(string(out)))
	if words[1] != "./local" {
		return
	}
	source := read(t, "local/cmd/stack/*.go")
	for _, word := range words[2:] {
		if name, ok := strings.CutPrefix(word, "-"); ok {
			require.Contains(t, source, `"`+name+`"`, "no flag %s", word)
		}
	}
}

var argument = regexp.MustCompile(`(-[Hd]) '([^']*)'`)

// checkCurl sends what curl would, twice.
func checkCurl(t *testing.T, line string) {
	contract, err := idemhttp.New(idemtest.New(t, nil).Engine,
		idemhttp.Routes{"POST /payments": {Name: "charge", Repeat: idem.Repeatable}}, idemhttp.SingleTenant, nil)
	require.NoError(t, err)
	server := httptest.NewServer(contract.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusCreated)
	}), nil))
	defer server.Close()
	for _, replayed := range []string{"", "true"} {
		var body bytes.Buffer
		header := http.Header{}
		for _, m := range argument.FindAllStringSubmatch(line, -1) {
			if m[1] == "-d" {
				body.WriteString(m[2])
				continue
			}
			name, value, ok := strings.Cut(m[2], ":")
			require.True(t, ok, m[2])
			header.Add(name, strings.TrimSpace(value))
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, server.URL+"/payments", &body)
		require.NoError(t, err)
		request.Header = header
		response, err := server.Client().Do(request)
		require.NoError(t, err)
		answer, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusCreated, response.StatusCode, "%s", answer)
		require.Equal(t, replayed, response.Header.Get("Idempotency-Replayed"))
	}
}
