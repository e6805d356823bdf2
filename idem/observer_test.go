package idem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/stretchr/testify/require"
)

// allPaused is what is paused: everything.
type allPaused struct{}

func (allPaused) MayExecute(context.Context, time.Time, string, string) error {
	return &idem.PausedError{}
}

// observed runs one scenario for each kind of notice.
var observed = map[notice.Kind]func(t *testing.T, r *rig){
	"limit_exceeded": func(t *testing.T, r *rig) {
		r.faults.Next(idemtest.Acquire, func(context.Context, *idemtest.Call) error { return &idem.LimitExceededError{} })
		refused(t, r, safe.Key("t", "l"), idem.ErrLimitExceeded, new(counter).run)
	},
	"paused": func(t *testing.T, r *rig) {
		r.engine = engineOver(t, r.faults, &idem.Options{Pauses: allPaused{}, Observer: r.events.observer})
		refused(t, r, safe.Key("t", "p"), idem.ErrPaused, new(counter).run)
	},
	"keyless": on(safe, func(t *testing.T, r *rig, key idem.Key) {
		_, err := r.engine.Execute(t.Context(), idem.Call{Key: key, Fingerprint: fingerprint.Bytes(nil), Keyless: true,
			Run: func(context.Context) idem.Answer { return idem.Answer{} }})
		require.NoError(t, err)
	}),
	"claimed":         on(safe, finished),
	"executed":        on(safe, finished),
	"completed":       on(safe, finished),
	"took_over":       on(safe, uncertainly, finished),
	"replayed":        on(safe, finished, finished),
	"in_flight":       on(safe, killed, try),
	"accepted":        on(safe, accepted, try),
	"outcome_unknown": on(unsafe, uncertainly, try),
	"key_reused":      on(safe, finished, reused),
	"failed":          on(safe, failed),
	"released":        on(safe, released),
	"parked":          on(unsafe, uncertainly),
	"uncommitted":     on(atomically, faulty(idemtest.Finish, idemtest.Refuse), try),
	"result_omitted": func(t *testing.T, r *rig) {
		_, _ = idem.Do(t.Context(), r.engine, safe.Key("t", "k"),
			1, func(context.Context, int) (awkward, error) { return awkward{"error"}, nil })
	},
	"step_recorded":    func(t *testing.T, r *rig) { stepping(t, r) },
	"step_replayed":    func(t *testing.T, r *rig) { stepping(t, r); stepping(t, r) },
	"step_compensated": func(t *testing.T, r *rig) { stepping(t, r); stepping(t, r) },
	"step_interrupted": func(t *testing.T, r *rig) {
		killedWith(t, r, safe.Key("t", "k"), shipping)
		_, _ = idem.Do(t.Context(), r.engine, safe.Key("t", "k"), 1, func(ctx context.Context, _ int) (int, error) {
			return idem.Step(ctx, "ship", func(context.Context) (int, error) { return 1, nil }, nil)
		})
	},
	"lease_lost": func(t *testing.T, r *rig) {
		_, _ = idem.Do(t.Context(), r.engine, safe.Key("t", "k"), 1, func(context.Context, int) (int, error) {
			r.clock.Advance(time.Hour)
			finished(t, r.elsewhere(t), safe.Key("t", "k"))
			return 1, nil
		})
	},
	"out_of_time": func(t *testing.T, r *rig) {
		_, _ = idem.Do(idem.WithKillTime(t.Context(), time.Now()), r.engine, safe.Key("t", "k"), 1, new(counter).run)
	},
	"store_unavailable": on(safe, faulty(idemtest.Acquire, idemtest.Refuse), try),
	"circuit_opened":    func(t *testing.T, r *rig) { down(t, r) },
	"circuit_closed": func(t *testing.T, r *rig) {
		down(t, r)
		r.faults.Heal()
		time.Sleep(time.Second)
		try(t, r, safe.Key("t", "k"))
	},
	"failed_open": on(failsOpen, faulty(idemtest.Acquire, idemtest.Refuse), try),
	"record_unreadable": func(t *testing.T, r *rig) {
		r.faults.Always(idemtest.Unreadable)
		try(t, r, safe.Key("t", "k"))
	},
	"withdrawn":      on(safe, faulty(idemtest.Acquire, idemtest.LoseReply), try),
	"outcome_queued": on(safe, faulty(idemtest.Finish, idemtest.LoseRequest), try),
	"outcome_landed": on(safe, faulty(idemtest.Finish, idemtest.LoseRequest), try, flushed),
	"outcome_dropped": on(safe, faulty(idemtest.Finish, idemtest.LoseRequest),
		try, func(t *testing.T, r *rig, key idem.Key) {
			r.clock.Advance(time.Hour)
			finished(t, r.elsewhere(t), key)
		}, flushed),
	"shadow_executed":   on(inShadow(safe), finished),
	"shadow_duplicate":  on(inShadow(safe), finished, finished),
	"shadow_key_reused": on(inShadow(safe), finished, reused),
	"shadow_refused": func(t *testing.T, r *rig) {
		_, _ = idem.Do(idem.WithKillTime(t.Context(), time.Now().Add(time.Millisecond)), r.engine,
			inShadow(safe).Key("t", "k"), 1, new(counter).run)
	},
	"shadow_unobserved": func(t *testing.T, r *rig) {
		r.faults.Always(idemtest.Refuse)
		try(t, r, inShadow(safe).Key("t", "k"))
	},
}

// on plays one after the other on one key.
func on(op idem.Operation, fs ...func(*testing.T, *rig, idem.Key)) func(*testing.T, *rig) {
	return func(t *testing.T, r *rig) { all(fs...)(t, r, op.Key("t", "k")) }
}

// stepping records a step the first time, and undoes it the second time.
func stepping(t *testing.T, r *rig) {
	err := errPlain
	if r.record(t, safe.Key("t", "k")) != nil {
		err = idem.Permanent(errPlain)
	}
	_, _ = idem.Do(t.Context(), r.engine, safe.Key("t", "k"), 1, func(ctx context.Context, _ int) (int, error) {
		got, _ := idem.Step(ctx, "ship", func(context.Context) (int, error) { return 1, nil },
			&idem.StepConfig[int]{Compensate: func(context.Context, int) error { return nil }})
		return got, err
	})
}

func reused(t *testing.T, r *rig, key idem.Key) {
	_, _ = idem.Do(t.Context(), r.engine, key, 2, new(counter).run)
}

func try(t *testing.T, r *rig, key idem.Key) {
	_, _ = idem.Do(inLambda(t.Context()), r.engine, key, 1, new(counter).run)
}

// down opens the engine's circuit.
func down(t *testing.T, r *rig) {
	r.faults.Always(idemtest.Refuse)
	for range 5 {
		try(t, r, safe.Key("t", "k"))
	}
}

// kinds are all that the package declares of calls.
func kinds(t *testing.T) (all []notice.Kind) {
	source, err := os.ReadFile("notice/notice.go")
	require.NoError(t, err)
	calls, _, found := bytes.Cut(source, []byte("// Kinds of notices of a sweep"))
	require.True(t, found)
	for _, m := range regexp.MustCompile(`Kind = "(\w+)"`).FindAllSubmatch(calls, -1) {
		all = append(all, notice.Kind(m[1]))
	}
	return all
}

// rigFor is a rig for the scenario of the kind.
func rigFor(t *testing.T, kind notice.Kind) *rig {
	if strings.HasPrefix(string(kind), "circuit") {
		return rigOver(t, memstore.New(), nil, nil)
	}
	return newRig(t, nil)
}

// An observer gets notices of every kind, and each says whom it is about.
func TestAnObserverGetsEveryKind(t *testing.T) {
	require.ElementsMatch(t, kinds(t), slices.Collect(maps.Keys(observed)), "one scenario each")
	for kind, scenario := range observed {
		bubble(t, string(kind), func(t *testing.T) {
			r := rigFor(t, kind)
			scenario(t, r)
			r.events.mu.Lock()
			defer r.events.mu.Unlock()
			require.Contains(t, r.events.names, string(kind))
			for _, n := range r.events.notices {
				require.Equal(t, "t", n.Tenant)
				require.NotEmpty(t, n.ID)
				require.Contains(t, []string{"safe", "unsafe", "open"}, n.Operation)
			}
		})
	}
}

// Without an observer every one of these paths works, and the default logger gets what
// somebody must look at, and nothing else.
func TestWithoutAnObserverWarningsAreLogged(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	for kind, scenario := range observed {
		bubble(t, string(kind), func(t *testing.T) {
			r, opts := rigFor(t, kind), new(idem.Options)
			if !strings.HasPrefix(string(kind), "circuit") {
				opts.Now = r.clock.Now
			}
			var all, logged bytes.Buffer
			slog.SetDefault(slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug})))
			var err error
			r.engine, err = idem.New(r.faults, opts)
			require.NoError(t, err)
			scenario(t, r)
			idem.LogTo(slog.New(slog.NewTextHandler(&all, nil)))(t.Context(), notice.Notice{Kind: kind})
			grave := regexp.MustCompile("level=(WARN|ERROR) .* kind=").Match(all.Bytes())
			require.Equal(t, grave, regexp.MustCompile(`level=(WARN|ERROR) .* kind=`+string(kind)+" ").Match(logged.Bytes()),
				logged.String())
			require.NotRegexp(t, "level=(INFO|DEBUG) .* kind=([^s]|s[^h])", logged.String())
			if strings.HasPrefix(string(kind), "shadow_") {
				require.Contains(t, logged.String(), "kind="+string(kind), "all that is reported in shadow is logged")
			}
		})
	}
}

func TestNoticesSayWhatHappened(t *testing.T) {
	var got []notice.Notice
	note := func(_ context.Context, n notice.Notice) { got = append(got, n) }
	e := engineOver(t, memstore.New(), &idem.Options{Observer: note})
	key := unsafe.Key("acme", "k")
	for range 2 {
		_, _ = idem.Do(t.Context(), e, key, 1, fails(errPlain))
	}
	for i := range got {
		require.GreaterOrEqual(t, got[i].Elapsed, time.Duration(0))
		got[i].Elapsed, got[i].Took = 0, 0
	}
	about := notice.Notice{ID: key.ID(), Tenant: "acme", Operation: "unsafe", Attempt: 1}
	claimed, executed, parked, unknown := about, about, about, about
	claimed.Kind, executed.Kind, parked.Kind, unknown.Kind = notice.Claimed, notice.Executed, notice.Parked, notice.Unknown
	claimed.State, parked.State, unknown.State = idem.InProgress, idem.Unknown, idem.Unknown
	executed.Err = errPlain
	parked.Err = &idem.RecordedError{Failure: idem.Failure{Message: "plain", Type: "errorString"}}
	require.Equal(t, []notice.Notice{claimed, executed, parked, unknown}, got)
}

// Claim, handler and recording have their own durations, which a replay has none of.
func TestNoticesSayHowLongItTook(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		for _, slow := range []idemtest.Method{idemtest.Acquire, idemtest.Finish} {
			r.faults.Next(slow, func(ctx context.Context, c *idemtest.Call) error {
				time.Sleep(300 * time.Millisecond)
				return c.Do(ctx)
			})
		}
		for range 2 {
			must(t, r, key, func(context.Context, int) (int, error) {
				time.Sleep(2 * time.Second)
				return 1, nil
			})
		}
		took := map[notice.Kind]time.Duration{}
		for _, n := range r.events.notices {
			took[n.Kind] = n.Took
		}
		require.Equal(t, map[notice.Kind]time.Duration{notice.Claimed: 300 * time.Millisecond,
			notice.Executed: 2 * time.Second, notice.Completed: 300 * time.Millisecond, notice.Replayed: 0}, took)
	})
}

// brokenLog is a log that panics over each line.
type brokenLog struct{ slog.Handler }

func (brokenLog) Enabled(context.Context, slog.Level) bool { return true }

func (brokenLog) Handle(context.Context, slog.Record) error { panic("log") }

// A metric that panics costs no outcome, wherever it is, and neither does the log that gets the panic.
func TestAnObserverThatPanicsChangesNothing(t *testing.T) {
	t.Run("a metric", func(t *testing.T) { observedBy(t, func(context.Context, notice.Notice) { panic("metrics") }) })
	t.Run("the log", func(t *testing.T) {
		defer slog.SetDefault(slog.Default())
		slog.SetDefault(slog.New(brokenLog{}))
		observedBy(t, nil)
	})
}

// observedBy runs what the observer has notices of, and requires that all outcomes are recorded.
func observedBy(t *testing.T, o idem.Observer) {
	for _, op := range both {
		r, key := rigOn(t, op)
		r.engine = engineOver(t, r.faults, &idem.Options{Observer: o})
		for range 2 {
			require.Equal(t, 1, must(t, r, key, r.c.run))
		}
		r.faults.Next(idemtest.Finish, idemtest.Refuse)
		must(t, r, op.Key("t", "queued"), r.c.run)
		require.NoError(t, r.engine.Flush(t.Context()))
		require.Equal(t, idem.Completed, r.state(t, op.Key("t", "queued")))
		must(t, r, op.Key("t", "unencodable"), func(context.Context, int) (float64, error) { return math.Inf(1), nil })
		require.Equal(t, idem.Completed, r.state(t, op.Key("t", "unencodable")))
	}
}

// Each observer gets the notice, whatever becomes of the others, and nil logs.
func TestObserversTellsEach(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	var logged bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&logged, nil)))
	var seen []notice.Kind
	note := func(_ context.Context, n notice.Notice) { seen = append(seen, n.Kind) }
	o := idem.Observers(func(context.Context, notice.Notice) { panic("metrics") }, nil, note)
	o(t.Context(), notice.Notice{Kind: notice.Parked, ID: "acme#charge#digest"})
	o(t.Context(), notice.Notice{Kind: notice.Replayed})
	require.Equal(t, []notice.Kind{notice.Parked, notice.Replayed}, seen)
	require.Regexp(t, `level=ERROR msg="idem: an observer panicked.* error="the observer panicked at .*: a value of `+
		`type string" .*\n.*level=WARN msg="idem: parked as unknown, .* record=acme#charge#digest`, logged.String())
	require.NotContains(t, logged.String(), "kind=replayed")
}

// A kind that is added is logged too, and says something of its own.
func TestLogToSaysEveryKind(t *testing.T) {
	var out bytes.Buffer
	o := idem.LogTo(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	said := map[string]notice.Kind{}
	for _, kind := range kinds(t) {
		out.Reset()
		o(t.Context(), notice.Notice{Kind: kind, ID: "acme#charge#digest", Operation: "charge", Attempt: 3,
			State: idem.Unknown, Err: errors.New("why")})
		for _, part := range []string{"acme#charge#digest", "attempt=3", "state=unknown", "error=why", "msg=\"idem: ",
			"kind=" + string(kind)} {
			require.Contains(t, out.String(), part, kind)
		}
		message := regexp.MustCompile(`msg=("[^"]*"|\S+)`).FindString(out.String())
		require.NotContains(t, said, message, "%s says the same as another", kind)
		said[message] = kind
	}
}

// What is not known, such as the state before a claim, is left out.
func TestLogToLeavesOutWhatIsNotKnown(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	idem.LogTo(log)(t.Context(), notice.Notice{Kind: notice.StoreUnavailable, ID: "acme#charge#digest",
		Operation: "charge", Elapsed: time.Second})
	require.Regexp(t, `msg="idem: store unavailable, nothing was executed" kind=store_unavailable `+
		`record=acme#charge#digest operation=charge elapsed=1s\n$`, out.String())
}

func TestTheOperationOfTheExampleIsProtectedWithoutItsVariable(t *testing.T) {
	require.Empty(t, os.Getenv("IDEM_SHADOW"))
	require.False(t, Fulfil.Shadow)
}

// A trial that somebody forgets is a service without protection.
func TestTheLogWarnsOnceOfEachOperationInShadow(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	for name, o := range map[string]idem.Observer{"the default log": idem.Observers(nil), "LogTo": idem.LogTo(nil)} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
			e := engineOver(t, memstore.New(), &idem.Options{Observer: o})
			for _, call := range []string{"charge", "charge", "refund", "charge"} {
				finished(t, &rig{engine: e}, idem.Operation{Name: call, Shadow: true}.Key("acme", "k"))
			}
			finished(t, &rig{engine: e}, idem.Operation{Name: "live"}.Key("acme", "k"))
			require.Equal(t, 2, strings.Count(out.String(), "level=WARN"), out.String())
			for _, op := range []string{"charge", "refund"} {
				require.Equal(t, 1, strings.Count(out.String(), "end the trial by Operation.Shadow\" operation="+op+"\n"),
					out.String())
			}
		})
	}
}

func TestLogToTheDefaultLogger(t *testing.T) {
	idem.LogTo(nil)(t.Context(), notice.Notice{Kind: notice.Claimed}) // debug: not shown, and no panic
}

// A result that does not decode again is quoted by the decoder.
func TestNoErrorTakesTheResultToTheDefaultLog(t *testing.T) {
	var out bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewJSONHandler(&out, nil)))
	e := engineOver(t, memstore.New(), nil)
	type kept struct {
		Text oneWay
		As   string
	}
	for i, as := range []string{"a number", "a panic", "an error", "a step"} {
		v := kept{As: as, Text: oneWay{as}}
		_, err := idem.Do(t.Context(), e, idem.Operation{Name: "order"}.Key("acme", strconv.Itoa(i)), as,
			func(ctx context.Context, _ string) (kept, error) {
				if as != "a step" {
					return v, nil
				}
				_, err := idem.Step(ctx, "step", func(context.Context) (oneWay, error) { return oneWay{"a number"}, nil }, nil)
				return kept{}, err
			})
		require.Equal(t, as == "a step", err != nil)
	}
	require.Equal(t, 3, strings.Count(out.String(), "recorded without its result"))
	require.Contains(t, out.String(), "decoding idem_test.oneWay again")
	require.Contains(t, out.String(), "encoding idem_test.kept panicked at observer_test.go")
	require.NotContains(t, out.String(), "4111111111111111")
}

// oneWay can be encoded, or not even that.
type oneWay struct{ as string }

func (o oneWay) MarshalJSON() ([]byte, error) {
	switch o.as {
	case "a panic":
		panic("4111111111111111")
	case "an error":
		return nil, errors.New("4111111111111111")
	}
	return []byte("4111111111111111"), nil
}

func (o *oneWay) UnmarshalJSON(b []byte) error {
	var small int32
	return json.Unmarshal(b, &small)
}
