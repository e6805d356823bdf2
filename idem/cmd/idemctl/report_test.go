package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
)

// trial is a service in shadow for a while, and what it logs.
func trial(t *testing.T) string {
	t.Helper()
	var log bytes.Buffer
	faults := idemtest.NewFaults(memstore.New())
	engine, err := idem.New(faults, &idem.Options{Observer: idem.LogTo(slog.New(slog.NewJSONHandler(&log, nil)))})
	require.NoError(t, err)
	refund := idem.Operation{Name: "refund", Shadow: true}
	payment := idem.Operation{Name: "payment", Repeat: idem.Repeatable, Shadow: true}
	c, err := idemhttp.New(engine, idemhttp.Routes{"POST /payments": payment, "POST /refunds/{id}": refund}, idemhttp.Claim("sub"), nil)
	require.NoError(t, err)
	send := func(route, tenant, key, body string, status int, whileItRuns func()) {
		r := &idemhttp.Request{Method: "POST", Route: route, Path: route, Body: []byte(body),
			Header: map[string][]string{"Content-Type": {"application/json"}}}
		if key != "" {
			r.Header["Idempotency-Key"] = []string{key}
		}
		if tenant != "" {
			r.Identity.Claims = map[string]string{"sub": tenant}
		}
		given := &idemhttp.Response{Status: status}
		res, err := c.Serve(t.Context(), r, func(context.Context) (*idemhttp.Response, error) {
			time.Sleep(120 * time.Millisecond)
			if whileItRuns != nil {
				whileItRuns()
			}
			return given, nil
		})
		require.NoError(t, err)
		require.Same(t, given, res)
		time.Sleep(time.Hour)
	}
	send("/payments", "acme", "payment-000000000001", `{"amount":1}`, 201, nil)
	send("/payments", "acme", "payment-000000000001", `{"amount":1}`, 201, nil)
	send("/payments", "acme", "payment-000000000001", `{"amount":2}`, 201, nil)
	send("/payments", "globex", "payment-000000000002", `{"amount":1}`, 201, func() {
		send("/payments", "globex", "payment-000000000002", `{"amount":1}`, 201, nil)
	})
	send("/payments", "globex", "payment-000000000003", `{"amount":1}`, 500, nil)
	send("/payments", "globex", "", `{"amount":1}`, 201, nil)
	send("/payments", "globex", "", `{"amount":1}`, 201, nil)
	send("/payments", "globex", "short", `{"amount":1}`, 201, nil)
	send("/payments", "", "payment-000000000004", `{"amount":1}`, 201, nil)
	send("/refunds/{id}", "acme", "refund-0000000000001", `{"amount":1}`, 502, nil)
	send("/refunds/{id}", "acme", "refund-0000000000001", `{"amount":1}`, 201, nil)
	send("/ledger", "acme", "ledger-0000000000001", `{"amount":1}`, 201, nil)
	faults.Always(idemtest.Refuse)
	send("/refunds/{id}", "acme", "refund-0000000000002", `{"amount":1}`, 201, nil)
	return log.String()
}

// The log that the golden report is made of is one of a service in shadow.
func TestTheLogOfTheReportIsReal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { golden(t, "testdata/shadow.log", trial(t)) })
}

// The logger of aws-lambda-go calls the time of a line by another name. A log may also have none.
func TestReportHasTheDatesOfItsLog(t *testing.T) {
	raw, err := os.ReadFile("testdata/shadow.log")
	require.NoError(t, err)
	want := reported(t, string(raw))
	require.Equal(t, want, reported(t, strings.ReplaceAll(string(raw), `"time":`, `"timestamp":`)))
	undated := strings.ReplaceAll(string(raw), `"time":`, `"when":`)
	require.NotContains(t, reported(t, undated), "0001-01-01")
	var out, errs bytes.Buffer
	require.Equal(t, exitDone, run(t.Context(), []string{"report"}, &terminal{in: strings.NewReader(undated), out: &out, err: &errs}, world{clock: time.Now}), errs.String())
	require.Contains(t, out.String(), "14 calls in shadow. In live mode:")

	var log bytes.Buffer
	engine, err := idem.New(memstore.New(), &idem.Options{Observer: idem.LogTo(slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{ReplaceAttr: lambdacontext.ReplaceAttr})))})
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), engine, idem.Operation{Name: "refund", Shadow: true}.Key("acme", "1"), 1, result)
	require.NoError(t, err)
	require.Contains(t, reported(t, log.String()), `"from": "20`)
}

// The log counts the same in every form in which it is kept.
func TestReportReadsLogsAsTheyAreKept(t *testing.T) {
	raw, err := os.ReadFile("testdata/shadow.log")
	require.NoError(t, err)
	var tailed, exported, other strings.Builder
	for line := range strings.Lines(string(raw)) {
		tailed.WriteString("2026-03-02T09:00:00.123000+00:00 2026/03/02/[$LATEST]f00 " + line)
		said, err := json.Marshal(line)
		require.NoError(t, err)
		exported.WriteString(`{"timestamp":1,"message":` + string(said) + "}\n")
		other.WriteString("START RequestId: 1\n{\"kind\":7}\n{\"kind\":\"completed\"}\n{broken\n\n" + line)
	}
	want := reported(t, string(raw))
	require.Contains(t, want, `"calls": 14`)
	for _, log := range []string{tailed.String(), exported.String(), other.String(), strings.TrimSuffix(string(raw), "\n")} {
		require.Equal(t, want, reported(t, log))
	}
}

// reported is the report on a log that is piped in.
func reported(t *testing.T, log string) string {
	t.Helper()
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"report", "-o", "json"}, &terminal{in: strings.NewReader(log), out: &out, err: &errs}, world{clock: time.Now})
	require.Equal(t, exitDone, code, errs.String())
	return out.String()
}

func TestReportSaysWhatIsMissing(t *testing.T) {
	for want, args := range map[string][]string{
		"none of 2 lines is of a call in shadow": {"report"},
		"no such file":                           {"report", "testdata/no.log"},
		"--top is 0":                             {"report", "--top", "0"},
		"--write-price is -1":                    {"report", "--write-price=-1"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), args, &terminal{in: strings.NewReader("one\ntwo"), out: &out, err: &errs}, world{clock: time.Now})
		require.NotEqual(t, exitDone, code)
		require.Contains(t, strings.Join(strings.Fields(errs.String()), " "), want)
		require.Empty(t, out.String())
	}
}

// The units are those of the cost table.
func TestReportCountsMeasuredUnits(t *testing.T) {
	raw, err := os.ReadFile("../../../infra/cost/measured.json")
	require.NoError(t, err)
	var measured struct {
		Paths map[string]struct{ Write float64 }
	}
	require.NoError(t, json.Unmarshal(raw, &measured))
	for path, units := range map[string]float64{
		"first execution, repeatable": unitsFirst, "first execution, not repeatable": unitsFirstWatched, "replay": unitsReplay,
		"failed, replayed": unitsFailure, "in flight": unitsInFlight, "outcome unknown": unitsUnknown, "key reused": unitsReused,
	} {
		require.Equal(t, measured.Paths[path].Write, units, path)
	}
}
