package comparing

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/kmsseal"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile/ledger"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/kmstest"
)

var (
	refund = idem.Operation{Name: "refund", Retention: 7 * 24 * time.Hour}
	noon   = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
)

// provided are a provider's entries, and an error after them.
func provided(err error,
	entries ...ledger.Entry) func(context.Context, time.Time, time.Time) iter.Seq2[ledger.Entry, error] {
	return func(context.Context, time.Time, time.Time) iter.Seq2[ledger.Entry, error] {
		return func(yield func(ledger.Entry, error) bool) {
			for _, e := range entries {
				if !yield(e, nil) {
					return
				}
			}
			if err != nil {
				yield(ledger.Entry{}, err)
			}
		}
	}
}

// rig is a function over a store, with its log and its metrics.
type rig struct {
	function
	log, metrics bytes.Buffer
}

func newRig(t *testing.T, o Options) *rig {
	r := &rig{}
	before := slog.Default()
	t.Cleanup(func() { slog.SetDefault(before) })
	slog.SetDefault(slog.New(slog.NewJSONHandler(&r.log, &slog.HandlerOptions{
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		}})))
	store := memstore.New()
	engine, err := idem.New(store, &idem.Options{Now: func() time.Time { return noon }})
	require.NoError(t, err)
	for _, order := range []string{"1", "2"} {
		_, err := idem.Do(t.Context(), engine, refund.Key("acme", order), order,
			func(context.Context, string) (string, error) { return "100 EUR", nil })
		require.NoError(t, err)
	}
	_, err = idem.Do(t.Context(), engine, refund.Key("acme", "3"), "3",
		func(context.Context, string) (string, error) { return "", errors.New("the connection broke") })
	require.Error(t, err)
	r.log.Reset()
	o.Operation = "refund"
	if o.Now == nil {
		o.Now = func() time.Time { return noon.AddDate(0, 0, 1) }
	}
	if o.Location == nil {
		o.Location = time.UTC
	}
	if o.Report == nil {
		o.Report = toLog
	}
	l, err := ledger.New(store, o.Options)
	require.NoError(t, err)
	metrics, err := emf.New(&emf.Options{Service: "ledger", Out: &r.metrics})
	require.NoError(t, err)
	r.function = function{l, o, metrics}
	return r
}

func (r *rig) handle(t *testing.T, in string) error {
	var e event
	require.NoError(t, json.Unmarshal([]byte(in), &e))
	err := r.function.handle(t.Context(), e)
	require.NoError(t, r.function.metrics.Flush(t.Context()))
	return err
}

func token(order string) string { return protocol.Token(refund.Key("acme", order).ID(), "") }

// Differences are in the log and in the metrics; what is open is in the log alone.
func TestADayIsCompared(t *testing.T) {
	r := newRig(t, Options{Options: ledger.Options{Entries: provided(nil, ledger.Entry{Token: token("1"), At: noon})}})
	require.NoError(t, r.handle(t, `{"time":"2026-03-02T04:00:00Z"}`))
	id := func(order string) string { return refund.Key("acme", order).ID() }
	require.ElementsMatch(t, []string{
		`{"level":"WARN","msg":"idem: ledger","finding":{"kind":"missing_there","record":"` + id("2") +
			`","record_state":"completed","here":{"token":"` + token("2") + `","at":"2026-03-01T12:00:00Z"}}}`,
		`{"level":"INFO","msg":"idem: ledger","finding":{"kind":"open","record":"` + id("3") +
			`","record_state":"unknown","here":{"token":"` + token("3") + `","at":"2026-03-01T12:00:00Z"}}}`,
		`{"level":"WARN","msg":"idem: compared","report":{"operation":"refund","from":"2026-03-01T00:00:00Z",` +
			`"to":"2026-03-02T00:00:00Z","entries":1,"records":3,"compared":1,"missing_here":0,"missing_there":1,` +
			`"different":0,"doubled":0,"unread":0,"open":1,"undecided":0}}`,
	}, strings.Split(strings.TrimSpace(r.log.String()), "\n"))
	require.Contains(t, r.metrics.String(), `"ledger_differences":1,"ledger_missing_there":1,"ledger_compared":1`)
}

// That nothing differs is a number too: without it no comparison has come to its end.
func TestThatNothingDiffersIsANumber(t *testing.T) {
	both := provided(nil, ledger.Entry{Token: token("1"), At: noon}, ledger.Entry{Token: token("2"), At: noon})
	r := newRig(t, Options{Options: ledger.Options{Entries: both}})
	require.NoError(t, r.handle(t, `{}`))
	require.Contains(t, r.metrics.String(), `"ledger_differences":0,"ledger_compared":2`)
	require.Contains(t, r.log.String(), `{"level":"INFO","msg":"idem: compared"`)

	r = newRig(t, Options{Options: ledger.Options{Entries: provided(errors.New("502 Bad Gateway"))}})
	require.ErrorContains(t, r.handle(t, `{}`), "502 Bad Gateway")
	require.NotContains(t, r.metrics.String(), "ledger_")
	require.Contains(t, r.log.String(), `{"level":"ERROR","msg":"idem: compared"`)
	require.Contains(t, r.log.String(), `"incomplete":true`)
}

// report is one that a test keeps.
type report struct {
	bytes.Buffer
	day    time.Time
	closed int
	fails  error
}

func (r *report) Close() error { r.closed++; return r.fails }

// A report of the caller's own is closed in any case, and an error of that is one of the invocation.
func TestAReportOfYourOwn(t *testing.T) {
	errDisk := errors.New("the bucket refuses it")
	for name, tc := range map[string]struct {
		opening, closing, provider error
		last                       string
	}{
		"written":         {last: `{"kind":"complete"`},
		"not to open":     {opening: errDisk},
		"not to close":    {closing: errDisk, last: `{"kind":"complete"`},
		"half a provider": {provider: errDisk},
	} {
		t.Run(name, func(t *testing.T) {
			var out report
			out.fails = tc.closing
			r := newRig(t, Options{
				Options: ledger.Options{Entries: provided(tc.provider)},
				Report: func(_ context.Context, day time.Time) (io.WriteCloser, error) {
					out.day = day
					return &out, tc.opening
				},
			})
			err := r.handle(t, `{"day":"2026-03-01"}`)
			require.Equal(t, time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), out.day)
			if name == "written" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, errDisk.Error())
				require.NotContains(t, r.metrics.String(), "ledger_")
			}
			require.Equal(t, tc.opening == nil, out.closed == 1)
			require.Equal(t, tc.last != "", strings.Contains(out.String(), `{"kind":"complete"`))
			require.NotContains(t, r.log.String(), `"finding"`)
		})
	}
}

// A daily schedule compares each day once, after its end and the margin, in each zone whose clocks change.
func TestADailyScheduleComparesEachDayOnce(t *testing.T) {
	for _, name := range []string{"Africa/Cairo", "Africa/Casablanca", "America/Adak", "America/Anchorage",
		"America/Chicago", "America/Denver", "America/Halifax", "America/Havana", "America/Los_Angeles", "America/Miquelon",
		"America/New_York", "America/Nuuk", "America/Santiago", "America/St_Johns", "Antarctica/Troll", "Asia/Beirut",
		"Asia/Gaza", "Asia/Jerusalem", "Asia/Tokyo", "Atlantic/Azores", "Atlantic/Canary", "Australia/Adelaide",
		"Australia/Lord_Howe", "Australia/Sydney", "Europe/Athens", "Europe/Berlin", "Europe/Chisinau", "Europe/Dublin",
		"Pacific/Auckland", "Pacific/Chatham", "Pacific/Easter", "Pacific/Norfolk", "UTC"} {
		zone, err := time.LoadLocation(name)
		require.NoError(t, err)
		f := function{opts: Options{Location: zone}}
		for hour := range 24 { // infra.DefaultLedgerSchedule is one of them
			var end time.Time
			for n := range 366 {
				at := time.Date(2026, 1, 1+n, hour, 0, 0, 0, time.UTC)
				from, to, err := f.day(event{Time: at})
				require.NoError(t, err)
				if n > 0 && !from.Equal(end) {
					require.Equal(t, end, from, "%s in %s", at, name)
				}
				if late := at.Sub(to); late < ledger.Margin || late > 27*time.Hour {
					require.Fail(t, "compared at a wrong time", "%s after its end, at %s in %s", late, at, name)
				}
				end = to
			}
		}
	}
}

// A schedule's event is repeated with its time, so that the day is the same after midnight too.
func TestTheDayOfAnEvent(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	date := func(m time.Month, d int, zone *time.Location) time.Time {
		return time.Date(2026, m, d, 0, 0, 0, 0, zone)
	}
	for _, tc := range []struct {
		in   string
		zone *time.Location
		day  time.Time
		says string
	}{
		{in: `{}`, day: date(3, 1, time.UTC)},
		{in: `{"time":"2026-03-08T04:00:00Z","detail-type":"Scheduled Event"}`, day: date(3, 7, time.UTC)},
		{in: `{"time":"2026-03-08T23:59:59Z"}`, zone: berlin, day: date(3, 7, berlin)},
		{in: `{"time":"2026-03-09T00:00:00Z"}`, zone: berlin, day: date(3, 8, berlin)},
		{in: `{"day":"2026-02-28","time":"2026-03-08T04:00:00Z"}`, zone: berlin, day: date(2, 28, berlin)},
		{in: `{"day":"yesterday"}`, says: `the event's day is "yesterday": use a day such as 2026-03-01`},
	} {
		r := newRig(t, Options{Options: ledger.Options{Entries: provided(nil)}, Location: tc.zone})
		var e event
		require.NoError(t, json.Unmarshal([]byte(tc.in), &e))
		day, _, err := r.day(e)
		if tc.says != "" {
			require.EqualError(t, err, tc.says)
			require.Error(t, r.handle(t, tc.in))
			continue
		}
		require.NoError(t, err)
		require.Equal(t, tc.day, day, tc.in)
	}
}

// A day on which the clocks change has 23 hours.
func TestADayOf23Hours(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	require.NoError(t, err)
	var asked time.Duration
	r := newRig(t, Options{Location: berlin, Options: ledger.Options{
		Now: func() time.Time { return time.Date(2026, 3, 30, 12, 0, 0, 0, time.UTC) },
		Entries: func(_ context.Context, from, to time.Time) iter.Seq2[ledger.Entry, error] {
			asked = to.Sub(from)
			return provided(nil)(nil, from, to)
		}}})
	require.NoError(t, r.handle(t, `{"day":"2026-03-29"}`))
	require.Equal(t, 23*time.Hour+2*ledger.Margin+24*time.Hour, asked, "with the margins and the day before")
}

// The program reads a table, and results that are encrypted in it.
func TestTheProgramReadsATable(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv("AWS_ACCESS_KEY_ID", "idemlocal")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "idemlocal")
	t.Setenv(schema.EnvEndpoint, dynamotest.Endpoint(t))
	table := "comparing-" + rand.Text()
	t.Setenv(schema.EnvTable, table)
	client := dynamotest.Client(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: client}, table))
	keys := kmstest.New(t)
	sealer, err := kmsseal.New(keys.Client(), kmsseal.Options{Key: "alias/results"})
	require.NoError(t, err)
	store, err := dynamostore.New(client, table,
		&dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute, Sealer: sealer})
	require.NoError(t, err)
	yesterday := time.Now().UTC().Truncate(24 * time.Hour).Add(-12 * time.Hour)
	engine, err := idem.New(store, &idem.Options{ClaimBudget: time.Minute, Now: func() time.Time { return yesterday }})
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), engine, refund.Key("acme", "1"), "1",
		func(context.Context, string) (string, error) { return "100 EUR", nil })
	require.NoError(t, err)

	var out report
	var written bytes.Buffer
	metrics, err := emf.New(&emf.Options{Service: "ledger", Out: &written})
	require.NoError(t, err)
	options := func(cfg aws.Config) (Options, error) {
		require.Equal(t, "eu-central-1", cfg.Region)
		return Options{
			Options: ledger.Options{
				Operation: "refund", Entries: provided(nil, ledger.Entry{Token: token("1"), Value: "120 EUR", At: yesterday}),
				Expect: func(ctx context.Context, rec ledger.Record) (x ledger.Expected, err error) {
					body, err := rec.Result(ctx)
					if err == nil {
						err = json.Unmarshal(body, &x.Value)
					}
					x.Effect = true
					return x, err
				},
				Now: func() time.Time { return yesterday.Add(24 * time.Hour) },
			},
			Report: func(context.Context, time.Time) (io.WriteCloser, error) { return &out, nil },
			Sealer: sealer,
		}, nil
	}
	f, err := open(t.Context(), options, metrics)
	require.NoError(t, err)
	require.NoError(t, f.handle(t.Context(), event{}))
	require.Contains(t, out.String(), `"value":"100 EUR"`)
	require.Contains(t, out.String(), `"value":"120 EUR"`)
	require.Contains(t, out.String(), `"different":1`)

	require.NoError(t, metrics.Flush(t.Context()))

	// Without the sealer no result can be read, which is a difference too.
	out.Reset()
	f, err = open(t.Context(), func(cfg aws.Config) (Options, error) {
		o, err := options(cfg)
		o.Sealer = nil
		return o, err
	}, metrics)
	require.NoError(t, err)
	require.NoError(t, f.handle(t.Context(), event{}))
	require.Contains(t, out.String(), `{"kind":"unread","record":`)
	require.NoError(t, metrics.Flush(t.Context()))
	require.Contains(t, written.String(), `"ledger_differences":1,"ledger_unread":1`)

	for says, options := range map[string]func(aws.Config) (Options, error){
		"PROVIDER_URL is missing": func(aws.Config) (Options, error) {
			return Options{}, errors.New("PROVIDER_URL is missing")
		},
		"Options.Entries": func(aws.Config) (Options, error) {
			return Options{Options: ledger.Options{Operation: "a"}}, nil
		},
	} {
		_, err := open(t.Context(), options, metrics)
		require.ErrorContains(t, err, says)
	}
}
