package idemlambda

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

// The test binary is also a Lambda function, which TestRealRuntime starts.
const asFunction = "IDEM_TEST_AS_FUNCTION"

func TestMain(m *testing.M) {
	if os.Getenv(asFunction) == "" {
		// What engines without an observer log is what their tests make happen.
		slog.SetDefault(slog.New(slog.DiscardHandler))
		os.Exit(m.Run())
	}
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	key := byPaymentID
	if os.Getenv(asFunction) == "misconfigured" {
		key = nil
	}
	given := failures()
	lambda.Start(Wrap(engine, charge, key, func(ctx context.Context, p payment) (receipt, error) {
		name, fails := strings.CutPrefix(p.ID, "fail:")
		switch {
		case fails:
			return receipt{}, idem.Permanent(given[name])
		case strings.HasPrefix(p.ID, "uncertain"):
			return receipt{}, errors.New("connection reset")
		case strings.HasPrefix(p.ID, "panic"):
			panic("boom")
		}
		info, _ := idem.InfoOf(ctx)
		return receipt{ID: p.ID, Note: "<lease> until the deadline: " +
			fmt.Sprint(time.Until(info.LeaseUntil) > 40*time.Second)}, nil
	}))
}

// runtimeAPI is Lambda's side of the Runtime API: it gives out the events one
// after the other, and collects what the function answers.
type runtimeAPI struct {
	events  []string
	answers chan answered
	next    int
}

// answered is what the function posted: to where ("response", "error"), and what.
type answered struct{ to, body string }

func (a *runtimeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	const root = "/2018-06-01/runtime/"
	path := strings.TrimPrefix(r.URL.Path, root)
	if path == "invocation/next" {
		if a.next == len(a.events) {
			<-r.Context().Done() // no more work: the function waits, as on Lambda
			return
		}
		w.Header().Set("Lambda-Runtime-Aws-Request-Id", fmt.Sprint("request-", a.next))
		w.Header().Set("Lambda-Runtime-Deadline-Ms", fmt.Sprint(time.Now().Add(time.Minute).UnixMilli()))
		_, _ = io.WriteString(w, a.events[a.next])
		a.next++
		return
	}
	body, _ := io.ReadAll(r.Body)
	w.WriteHeader(http.StatusAccepted)
	a.answers <- answered{path[strings.LastIndexByte(path, '/')+1:], string(body)}
}

// function starts the test binary as a function that works on the events.
func function(t *testing.T, mode string, events ...string) (answers chan answered,
	ended func() (code int, log string)) {
	t.Helper()
	api := &runtimeAPI{events: events, answers: make(chan answered, len(events))}
	server := httptest.NewServer(api) // on 127.0.0.1
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), asFunction+"="+mode, "AWS_LAMBDA_RUNTIME_API="+
		strings.TrimPrefix(server.URL, "http://"))
	out, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	lines := make(chan string, 1)
	go func() {
		var b strings.Builder
		for s := bufio.NewScanner(out); s.Scan(); {
			b.WriteString(s.Text() + "\n")
		}
		lines <- b.String()
	}()
	var once func() (int, string)
	t.Cleanup(func() {
		cancel()
		if once == nil {
			<-lines
			_ = cmd.Wait()
		}
		server.CloseClientConnections()
		server.Close()
	})
	return api.answers, func() (int, string) {
		log := <-lines
		_ = cmd.Wait()
		once = func() (int, string) { return cmd.ProcessState.ExitCode(), log }
		return once()
	}
}

func eventOf(id string) string { return `{"paymentId":"` + id + `"}` }

// Through the real runtime loop: raw bytes out, and what the runtime reports of an error is the same for a replay.
func TestRealRuntime(t *testing.T) {
	names := slices.Sorted(maps.Keys(failures()))
	sent := []string{eventOf("pay_1"), eventOf("pay_1"), `{"paymentId":"pay_1","amount":1}`, `{"paymentId":null}`,
		eventOf("uncertain"), eventOf("uncertain")}
	for _, name := range names {
		sent = append(sent, eventOf("fail:"+name), eventOf("fail:"+name))
	}
	sent = append(sent, eventOf("panic"))
	answers, ended := function(t, "yes", sent...)

	first, again := <-answers, <-answers
	require.Equal(t, answered{"response", `{"id":"pay_1","note":"<lease> until the deadline: true"}`}, first)
	require.Equal(t, first, again)

	type report struct{ ErrorMessage, ErrorType string }
	failed := func(a answered) (r report) {
		require.Equal(t, "error", a.to, a.body)
		require.NoError(t, json.Unmarshal([]byte(a.body), &r))
		return r
	}
	require.Equal(t, "KeyReusedError", failed(<-answers).ErrorType)
	require.Equal(t, "KeyInvalidError", failed(<-answers).ErrorType)
	require.Equal(t, report{"connection reset", "errorString"}, failed(<-answers))
	require.Equal(t, "OutcomeUnknownError", failed(<-answers).ErrorType)

	want := map[string]report{
		"plain":         {"plain", "errorString"},
		"own type":      {"declined: no cover", "DeclinedError"},
		"wrapped":       {"charging: declined: no cover", "wrapError"},
		"lambda":        {"no cover", "CardDeclined"},
		"lambda inside": {ErrorType: "wrapError"},
		"recorded":      {"inner", "InnerError"},
	}
	for _, name := range names {
		live, replay := failed(<-answers), failed(<-answers)
		if name == "lambda inside" {
			// Its text holds an address of the stack trace.
			require.Equal(t, live, replay)
			require.Equal(t, want[name].ErrorType, live.ErrorType)
			continue
		}
		require.Equal(t, want[name], live, name)
		require.Equal(t, want[name], replay, name)
	}

	require.Equal(t, report{"boom", "string"}, failed(<-answers))
	code, _ := ended()
	require.Equal(t, 1, code, "a panic ends the process")
}

// A mistake in the set-up ends the function in its init phase, with what to do.
func TestMisconfiguredFunctionTakesNoEvent(t *testing.T) {
	answers, ended := function(t, "misconfigured", eventOf("pay_1"))
	code, log := ended()
	require.Equal(t, 2, code)
	require.Contains(t, log, "the key function is nil")
	require.Empty(t, answers)
}
