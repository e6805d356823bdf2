package emf_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/internal/metric"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

var charge = idem.Operation{Name: "charge", Repeat: idem.Repeatable}

// logs is where a function's lines go.
type logs struct {
	mu sync.Mutex
	bytes.Buffer
}

func (l *logs) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.Buffer.Write(b)
}

// lines takes the lines, each valid by the schema that AWS publishes and by the format's rules that the schema does
// not have: every metric and dimension is a member, at most 100 metrics and 100 values.
func (l *logs) lines(t *testing.T) (all []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	compiler := jsonschema.NewCompiler()
	compiler.DefaultDraft(jsonschema.Draft7) // whose $id may be a fragment
	published, err := compiler.Compile("testdata/emf-schema.json")
	require.NoError(t, err)
	for line := range strings.Lines(l.String()) {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(line))
		require.NoError(t, err, line)
		require.NoError(t, published.Validate(doc), line)
		require.Equal(t, byte('\n'), line[len(line)-1])
		require.Less(t, len(line), 256<<10)
		var parsed struct {
			AWS struct {
				CloudWatchMetrics []struct {
					Namespace  string
					Dimensions [][]string
					Metrics    []struct{ Name, Unit string }
				}
			} `json:"_aws"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &parsed))
		var m map[string]any
		require.NoError(t, json.Unmarshal([]byte(line), &m))
		require.Len(t, parsed.AWS.CloudWatchMetrics, 1)
		d := parsed.AWS.CloudWatchMetrics[0]
		require.Equal(t, schema.MetricNamespace, d.Namespace)
		require.LessOrEqual(t, len(d.Metrics), 100)
		for _, metric := range d.Metrics {
			switch v := m[metric.Name].(type) {
			case float64:
			case []any:
				require.LessOrEqual(t, len(v), 100)
			default:
				require.Fail(t, "no number", "%s: %v", metric.Name, v)
			}
		}
		for _, set := range d.Dimensions {
			for _, name := range set {
				require.IsType(t, "", m[name])
			}
		}
		delete(m, "_aws")
		all = append(all, m)
	}
	l.Reset()
	return all
}

// flushed takes the lines of what was counted since the last ones.
func (l *logs) flushed(t *testing.T, m *emf.Metrics) []map[string]any {
	t.Helper()
	require.NoError(t, m.Flush(t.Context()))
	return l.lines(t)
}

func metrics(t *testing.T, o emf.Options) (*emf.Metrics, *logs) {
	out := &logs{}
	o.Out = out
	if o.Service == "" {
		o.Service = "payments"
	}
	m, err := emf.New(&o)
	require.NoError(t, err)
	return m, out
}

// handler is a lambda.Handler.
type handler func(context.Context, []byte) ([]byte, error)

func (h handler) Invoke(ctx context.Context, payload []byte) ([]byte, error) { return h(ctx, payload) }

func invocation(ctx context.Context, id string) context.Context {
	return lambdacontext.NewContext(ctx, &lambdacontext.LambdaContext{AwsRequestID: id})
}

func TestOneLineAnInvocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, out := metrics(t, emf.Options{})
		engine, err := idem.New(memstore.New(), &idem.Options{Observer: idem.Observers(m.Observe, nil)})
		require.NoError(t, err)
		h := m.Wrap(handler(func(ctx context.Context, payload []byte) ([]byte, error) {
			_, err := idem.Do(ctx, engine, charge.Key("acme", "k"), string(payload), func(context.Context, string) (int, error) {
				time.Sleep(1234567 * time.Microsecond)
				return 1, nil
			})
			return nil, err
		}))
		_, err = h.Invoke(invocation(t.Context(), "r1"), []byte("1"))
		require.NoError(t, err)
		require.Equal(t, []map[string]any{{
			"service": "payments", "operation": "charge", "requestId": "r1", "claimed": 1.0, "executed": 1.0,
			"completed": 1.0, "handler_time": 1234.567, "duplicate": 0.0,
		}}, out.lines(t))
		_, err = h.Invoke(invocation(t.Context(), "r2"), []byte("1"))
		require.NoError(t, err)
		_, err = h.Invoke(invocation(t.Context(), "r3"), []byte("2"))
		require.ErrorIs(t, err, idem.ErrKeyReused)
		require.Equal(t, []map[string]any{
			{"service": "payments", "operation": "charge", "requestId": "r2", "replayed": 1.0, "duplicate": 100.0,
				"top_duplicate_tenants": map[string]any{"acme": 1.0}},
			{"service": "payments", "operation": "charge", "requestId": "r3", "key_reused": 1.0, "duplicate": 100.0,
				"top_duplicate_tenants": map[string]any{"acme": 1.0}},
		}, out.lines(t))
	})
}

func TestAnInvocationInWhichNothingHappensWritesNothing(t *testing.T) {
	m, out := metrics(t, emf.Options{})
	h := m.Wrap(handler(func(ctx context.Context, payload []byte) ([]byte, error) {
		m.Observe(ctx, notice.Notice{Kind: notice.StepRecorded, Operation: "charge"})
		m.Observe(ctx, notice.Notice{Kind: "of a later release", Operation: "charge"})
		return payload, errors.New("why")
	}))
	got, err := h.Invoke(t.Context(), []byte("answer"))
	require.EqualError(t, err, "why")
	require.Equal(t, "answer", string(got))
	require.Empty(t, out.lines(t))
}

func TestAPanicWritesItsMetrics(t *testing.T) {
	m, out := metrics(t, emf.Options{})
	h := m.Wrap(handler(func(ctx context.Context, _ []byte) ([]byte, error) {
		m.Observe(ctx, notice.Notice{Kind: notice.Parked, Operation: "refund"})
		panic("boom")
	}))
	require.PanicsWithValue(t, "boom", func() { _, _ = h.Invoke(t.Context(), nil) })
	require.Equal(t, []map[string]any{{"service": "payments", "operation": "refund", "parked": 1.0}}, out.lines(t))
}

// An invocation that Lambda kills at its time-out does not reach its end: a table that is down and a handler that
// takes its time come together. What was counted is out before, and so is what is counted in the last moments.
func TestAKilledInvocationHasWrittenItsMetrics(t *testing.T) {
	for _, limit := range []time.Duration{200 * time.Millisecond, 30 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			m, out := metrics(t, emf.Options{})
			ctx, cancel := context.WithTimeout(invocation(t.Context(), "r1"), limit)
			defer cancel()
			killed := make(chan struct{})
			go m.Wrap(handler(func(ctx context.Context, _ []byte) ([]byte, error) {
				m.Observe(ctx, notice.Notice{Kind: notice.FailedOpen, Operation: "charge"})
				time.Sleep(limit - limit/100)
				m.Observe(ctx, notice.Notice{Kind: notice.OutcomeDropped, Operation: "charge"})
				<-killed
				return nil, nil
			})).Invoke(ctx, nil)
			<-ctx.Done()
			synctest.Wait()
			lines := out.lines(t)
			require.Len(t, lines, 2)
			require.Equal(t, 1.0, lines[0]["failed_open"])
			require.Equal(t, 1.0, lines[1]["outcome_dropped"])
			require.Equal(t, "r1", lines[1][schema.PropertyRequest])
			close(killed)
			synctest.Wait()

			m.Observe(ctx, notice.Notice{Kind: notice.Executed, Operation: "charge"})
			require.Empty(t, out.lines(t), "one that has ended after all is over")
		})
	}
}

// What a time-out has killed has begun, and has not returned.
func TestAnAttemptThatNeverReturnsIsClaimedAndNotExecuted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, out := metrics(t, emf.Options{})
		engine, err := idem.New(memstore.New(), &idem.Options{Observer: m.Observe})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(invocation(t.Context(), "r1"), 30*time.Second)
		defer cancel()
		killed := make(chan struct{})
		go m.Wrap(handler(func(ctx context.Context, _ []byte) ([]byte, error) {
			_, err := idem.Do(ctx, engine, charge.Key("acme", "k"), 1, func(context.Context, int) (int, error) {
				<-killed
				return 1, nil
			})
			return nil, err
		})).Invoke(ctx, nil)
		<-ctx.Done()
		require.Equal(t, []map[string]any{
			{"service": "payments", "operation": "charge", "requestId": "r1", "claimed": 1.0},
		}, out.lines(t))
		close(killed)
		synctest.Wait()
	})
}

// A batch's durations are values of one line, as many as the format allows.
func TestABatchIsFewLines(t *testing.T) {
	m, out := metrics(t, emf.Options{})
	for i := range 250 {
		m.Observe(t.Context(), notice.Notice{Kind: notice.Executed, Operation: "fulfil",
			Took: time.Duration(i+1) * time.Millisecond})
		m.Observe(t.Context(), notice.Notice{Kind: notice.Completed, Operation: "fulfil"})
	}
	m.Observe(t.Context(), notice.Notice{Kind: notice.InFlight, Operation: "other"})
	lines := out.flushed(t, m)
	require.Len(t, lines, 4)
	values := 0
	for _, l := range lines[:3] {
		values += len(l["handler_time"].([]any))
	}
	require.Equal(t, 250, values)
	require.Equal(t, 250.0, lines[0]["executed"])
	require.Equal(t, 250.0, lines[0]["completed"])
	require.NotContains(t, lines[1], "executed")
	require.Equal(t, map[string]any{"service": "payments", "operation": "other", "in_flight": 1.0, "duplicate": 100.0},
		lines[3])
	require.Empty(t, out.flushed(t, m), "each value is written once")
}

// Every metric at once is a valid line.
func TestEveryMetricAtOnce(t *testing.T) {
	m, out := metrics(t, emf.Options{})
	m.Add("charge", func(yield func(string, int) bool) {
		for _, known := range metric.All {
			if !yield(known.Name, 7) {
				return
			}
		}
		yield("none", 1)
	})
	for _, kind := range []notice.Kind{notice.Claimed, notice.Executed, notice.Completed} {
		m.Observe(t.Context(), notice.Notice{Kind: kind, Operation: "charge", Took: time.Millisecond})
	}
	lines := out.flushed(t, m)
	require.Len(t, lines, 1)
	require.Len(t, lines[0], len(metric.All)+2)
}

// Where invocations share a process, nothing is lost and nothing is counted twice.
func TestConcurrentInvocations(t *testing.T) {
	m, out := metrics(t, emf.Options{})
	engine, err := idem.New(memstore.New(), &idem.Options{Observer: m.Observe})
	require.NoError(t, err)
	h := m.Wrap(handler(func(ctx context.Context, payload []byte) ([]byte, error) {
		return idem.Do(ctx, engine, charge.Key("acme", string(payload)),
			1, func(context.Context, int) ([]byte, error) { return nil, nil })
	}))
	var g sync.WaitGroup
	for i := range 64 {
		g.Go(func() {
			for range 2 {
				_, err := h.Invoke(t.Context(), fmt.Append(nil, i))
				require.NoError(t, err)
			}
		})
	}
	g.Wait()
	sums := map[string]float64{}
	for _, l := range out.lines(t) {
		for _, name := range []string{"executed", "completed", "replayed"} {
			n, _ := l[name].(float64)
			sums[name] += n
		}
	}
	require.Equal(t, map[string]float64{"executed": 64, "completed": 64, "replayed": 64}, sums)
}

func TestTenantsWithTheMostDuplicates(t *testing.T) {
	for name, tc := range map[string]struct {
		hide bool
		want any
	}{
		"shown":  {false, map[string]any{"t9": 9.0, "t8": 8.0, "t7": 7.0, "t6": 6.0, "a\"\x00\ufffd": 10.0}},
		"hidden": {true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			m, out := metrics(t, emf.Options{HideTenants: tc.hide})
			for n := range 10 {
				tenant := fmt.Sprint("t", n)
				for range n {
					m.Observe(t.Context(), notice.Notice{Kind: notice.Replayed, Operation: "charge", Tenant: tenant})
				}
				m.Observe(t.Context(), notice.Notice{Kind: notice.Replayed, Operation: "charge", Tenant: "a\"\x00\xff"})
				m.Observe(t.Context(), notice.Notice{Kind: notice.Replayed, Operation: "charge"})
				m.Observe(t.Context(), notice.Notice{Kind: notice.Completed, Operation: "charge", Tenant: "first"})
			}
			require.Equal(t, tc.want, out.flushed(t, m)[0]["top_duplicate_tenants"])
		})
	}
	m, out := metrics(t, emf.Options{})
	for n := range 5000 {
		m.Observe(t.Context(), notice.Notice{Kind: notice.Replayed, Operation: "charge", Tenant: fmt.Sprint(n)})
	}
	l := out.flushed(t, m)[0]
	require.Len(t, l["top_duplicate_tenants"], 5)
	require.Equal(t, 5000.0, l["replayed"])
}

// The runbook's query finds the tenant, and how often, in each line that has any.
func TestTheRunbooksQueryFindsTheTenant(t *testing.T) {
	page, err := os.ReadFile("../../infra/RUNBOOK.md")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^parse @message /(.+?)/ \|`).FindStringSubmatch(string(page))
	require.NotNil(t, found)
	query := regexp.MustCompile(found[1])
	m, out := metrics(t, emf.Options{})
	for _, tenant := range []string{"acme", "b & c", "acme"} {
		m.Observe(t.Context(), notice.Notice{Kind: notice.Replayed, Operation: "charge", Tenant: tenant})
	}
	m.Observe(t.Context(), notice.Notice{Kind: notice.Executed, Operation: "refund", Tenant: "acme"})
	require.NoError(t, m.Flush(t.Context()))
	got := query.FindAllStringSubmatch(out.String(), -1)
	require.Len(t, got, 1)
	require.Equal(t, []string{"acme", "2"}, got[0][1:])
}

// An alarm on what is open needs the 0 of a sweep that finds nothing.
func TestNothingOpenIsSaid(t *testing.T) {
	m, out := metrics(t, emf.Options{})
	r, err := reconcile.New(memstore.New(), nil)
	require.NoError(t, err)
	open, err := r.OpenQuestions(t.Context())
	require.NoError(t, err)
	require.Len(t, open, 1)
	m.Add("", open[0].Counts())
	m.Add("", reconcile.Report{DryRun: true}.Counts())
	require.Equal(t, []map[string]any{{"service": "payments", "open": 0.0, "oldest_open": 0.0}}, out.flushed(t, m))
}

func TestTheServiceIsTheFunction(t *testing.T) {
	t.Setenv("AWS_LAMBDA_FUNCTION_NAME", "")
	_, err := emf.New(nil)
	require.ErrorContains(t, err, "set AWS_LAMBDA_FUNCTION_NAME, as Lambda does, or Options.Service")
	t.Setenv("AWS_LAMBDA_FUNCTION_NAME", "charges")
	out := &logs{}
	m, err := emf.New(&emf.Options{Out: out})
	require.NoError(t, err)
	m.Observe(t.Context(), notice.Notice{Kind: notice.Escalated, Operation: "charge"})
	require.Equal(t, "charges", out.flushed(t, m)[0]["service"])
}

// CloudWatch drops metrics whose dimensions have other values, and an operation may have any name.
func TestDimensionsHaveValuesThatCloudWatchTakes(t *testing.T) {
	for name, says := range map[string]string{
		"überweisung": "%C3%BCberweisung", "refund\n": "refund%0A", " ": "%20", "a\x7fb": "a%7Fb",
		"POST /refunds/{id} 100%": "POST /refunds/{id} 100%",
	} {
		require.NoError(t, (idem.Operation{Name: name}).Check())
		m, out := metrics(t, emf.Options{})
		m.Observe(t.Context(), notice.Notice{Kind: notice.FailedOpen, Operation: name})
		require.Equal(t, says, out.flushed(t, m)[0][schema.DimensionOperation])
	}
	for _, service := range []string{" ", "überweisung", "a\n", strings.Repeat("a", 1025)} {
		_, err := emf.New(&emf.Options{Service: service})
		var mistake *idem.ConfigError
		require.ErrorAs(t, err, &mistake)
		require.ErrorContains(t, err, "Options.Service")
	}
}

// Lambda drops what is below the function's log level, and takes lines without one for INFO.
func TestALineHasTheFunctionsLogLevel(t *testing.T) {
	t.Setenv("AWS_LAMBDA_LOG_LEVEL", "ERROR")
	m, out := metrics(t, emf.Options{})
	m.Observe(t.Context(), notice.Notice{Kind: notice.Escalated, Operation: "charge"})
	l := out.flushed(t, m)[0]
	require.Equal(t, "ERROR", l["level"])
	_, err := time.Parse(time.RFC3339, l["timestamp"].(string))
	require.NoError(t, err)
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("closed pipe") }

func TestALineThatCannotBeWrittenIsAnErrorAndCostsNoAnswer(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	var logged bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	m, err := emf.New(&emf.Options{Service: "payments", Out: broken{}})
	require.NoError(t, err)
	h := m.Wrap(handler(func(ctx context.Context, payload []byte) ([]byte, error) {
		m.Observe(ctx, notice.Notice{Kind: notice.Parked, Operation: "refund"})
		return payload, nil
	}))
	got, err := h.Invoke(t.Context(), []byte("answer"))
	require.NoError(t, err)
	require.Equal(t, "answer", string(got))
	require.Contains(t, logged.String(), "closed pipe")
	m.Observe(t.Context(), notice.Notice{Kind: notice.Parked, Operation: "refund"})
	require.EqualError(t, m.Flush(t.Context()), "closed pipe")
}
