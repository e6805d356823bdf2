package idemtest_test

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// A handler's mistakes are found.
func TestExploreFindsMistakes(t *testing.T) {
	for name, c := range map[string]struct {
		op      idem.Operation
		handler handler
		want    string
	}{
		"a charge without a token": {repeat, withoutToken, "bank: charge took place more than once"},
		"another token each time": {repeat, func(ctx context.Context, s shop) (string, error) {
			return "charged", permanent(s.bank().Do(ctx, "charge", rand.Text()))
		}, "bank: charge took place more than once"},
		"an effect before a step": {repeat, mailsFirst, "mail: welcome took place more than once"},
		"a swallowed error":       {once, swallows, "the caller got a result, and bank: charge has not taken place"},
		"a compensation forgotten": {repeat, func(ctx context.Context, s shop) (string, error) {
			if err := step(ctx, s.bank(), "charge", false); err != nil {
				return "", err
			}
			return "ordered", step(ctx, s.stock(), "reserve", false)
		}, "the operation failed, and bank: charge stands"},
		"a refund without a token": {repeat, func(ctx context.Context, s shop) (string, error) {
			err := idem.StepEffect(ctx, "charge", func(ctx context.Context) error {
				return permanent(s.bank().Do(ctx, "charge", idem.Token(ctx)))
			}, &idem.EffectConfig{Compensate: func(ctx context.Context) error { return s.bank().Undo(ctx, "charge", "") }})
			if err != nil {
				return "", idem.PermanentStep(err)
			}
			return "ordered", step(ctx, s.stock(), "reserve", false)
		}, "bank: charge was undone more than once"},
		"a rejection that is not marked": {repeat, func(ctx context.Context, s shop) (string, error) {
			return "charged", s.bank().Do(ctx, "charge", idem.Token(ctx))
		}, "no outcome is recorded: each call ends with: error (the other system has rejected the call)"},
		"a rejection after a step that is not marked": {repeat, unmarked, neverEnds},
		"another result in each attempt": {repeat, func(ctx context.Context, s shop) (string, error) {
			return rand.Text(), permanent(s.bank().Do(ctx, "charge", idem.Token(ctx)))
		}, "a caller got a result, and a later one another result"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := idemtest.Findings(t, scenario(c.op, c.handler))
			require.NoError(t, err)
			require.Contains(t, found, c.want)
		})
	}
}

// What was not sent is not executed, unless something else was. What has no reply may have been executed.
func TestExploreOfNotExecuted(t *testing.T) {
	charge := func(ctx context.Context, s shop, unsent ...error) error {
		err := s.bank().Do(ctx, "charge", "")
		if slices.ContainsFunc(unsent, func(of error) bool { return errors.Is(err, of) }) {
			return idem.NotExecuted(err)
		}
		return permanent(err)
	}
	for name, c := range map[string]struct {
		handler handler
		want    string
	}{
		"not sent": {func(ctx context.Context, s shop) (string, error) {
			return "charged", charge(ctx, s, idemtest.ErrNotSent)
		}, ""},
		"not sent, or no reply": {func(ctx context.Context, s shop) (string, error) {
			return "charged", charge(ctx, s, idemtest.ErrNotSent, idemtest.ErrNoReply)
		}, "bank: charge took place more than once"},
		"not sent after an effect": {func(ctx context.Context, s shop) (string, error) {
			if err := s.w.Optional("mail").Do(ctx, "welcome", ""); err != nil {
				return "", permanent(err)
			}
			return "charged", charge(ctx, s, idemtest.ErrNotSent)
		}, "mail: welcome took place more than once"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := idemtest.Findings(t, scenario(once, c.handler))
			require.NoError(t, err)
			if c.want == "" {
				require.Empty(t, found)
			} else {
				require.Contains(t, found, c.want)
			}
		})
	}
	require.Regexp(t, `\n1st bank: charge is not sent +bank: charge +error +success +completed\n`,
		idemtest.ReportOf(t, scenario(once, func(ctx context.Context, s shop) (string, error) {
			return "charged", charge(ctx, s, idemtest.ErrNotSent)
		})).String())
}

// A run has no fault that its mistake does not need: these need one.
func TestExplorePrintsTheFewestFaults(t *testing.T) {
	for name, h := range map[string]handler{"unmarked": unmarked, "a swallowed error": swallows} {
		runs := idemtest.Runs(t, scenario(repeat, h))
		require.NotEmpty(t, runs, name)
		for found, lines := range runs {
			all := strings.Join(lines, "\n")
			require.Equal(t, 1, strings.Count("\n"+all, "\n>> process "), "%s:\n%s", found, all)
		}
	}
}

// neverEnds is found where a rejection after a step is not marked.
const neverEnds = "no outcome is recorded: each call runs the handler and ends with: error (" +
	"the other system has rejected the call)"

// A sweep brings no outcome to what each call ends in the same way.
func TestExploreFindsWhatIsNotMarkedNextToASweep(t *testing.T) {
	found, err := idemtest.Findings(t, func(w *idemtest.World) {
		w.Sweep(reconcile.Operation{Operation: repeat})
		scenario(repeat, unmarked)(w)
	})
	require.NoError(t, err)
	require.Contains(t, found, neverEnds)
}

// Mistakes of workers are found, and a worker without one is left alone, whatever brings it.
func TestExploreBringsWorkers(t *testing.T) {
	for name, c := range map[string]struct {
		work  handler
		fails func(error) error
		want  string
	}{
		"right": {withToken, again, ""},
		"busy at first": {func(ctx context.Context, s shop) (string, error) {
			if attempt, _ := idem.InfoOf(ctx); attempt.Attempt == 1 {
				return "", idem.NotExecuted(errors.New("busy"))
			}
			return withToken(ctx, s)
		}, again, ""},
		"a charge without a token": {withoutToken, again, "bank: charge took place more than once"},
		"an effect before a step":  {mailsFirst, again, "mail: welcome took place more than once"},
		"a rejection after a step that is not marked": {unmarked, func(err error) error {
			if isRecorded(err) {
				return nil
			}
			return err
		}, "no outcome is recorded: each call ends with: error (accepted)"},
		"no delivery acknowledged": {withToken, func(error) error { return errors.New("again") }, ""},
		"every delivery acknowledged": {withToken, func(error) error { return nil },
			"no outcome is recorded: each call ends with: error (accepted)"},
		"what runs already acknowledged": {withToken, func(err error) error {
			if errors.Is(err, idem.ErrInFlight) {
				return nil
			}
			return again(err)
		}, "no outcome is recorded: each call ends with: error (accepted)"},
	} {
		for way, stream := range map[string]bool{"a message": false, "the stream": true} {
			t.Run(name+", "+way, func(t *testing.T) {
				found, err := idemtest.Findings(t, accepted(stream, c.work, c.fails))
				require.NoError(t, err)
				if c.want == "" {
					require.Empty(t, found)
				} else {
					require.Contains(t, found, c.want)
				}
			})
		}
	}
}

// Mistakes of probes are found.
func TestExploreFindsMistakesOfProbes(t *testing.T) {
	for want, s := range map[string]func(*idemtest.World){
		"the operation failed, and bank: charge stands": probed(func(bank *idemtest.Provider) asks {
			return func(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
				if found, err := bank.Ask(ctx, "charge", q.Token); found || err != nil {
					return reconcile.CompletedWith("charged"), err
				}
				return reconcile.FailedWith(idem.Failure{Message: "not found"}), nil // its request may be on its way
			}
		}),
		"the caller got a result, and bank: charge has not taken place": probed(func(*idemtest.Provider) asks {
			return func(context.Context, reconcile.Question) (reconcile.Answer, error) {
				return reconcile.CompletedWith("charged"), nil
			}
		}),
	} {
		found, err := idemtest.Findings(t, s)
		require.NoError(t, err)
		require.Contains(t, found, want)
	}
}

// Explore says what a scenario should return in place of a response, and where two responses differ.
func TestExploreOfAResponse(t *testing.T) {
	const advice = " (the result is a response of HTTP: let the scenario return its body, and an error if its status is " +
		"no success)"
	runs := idemtest.Runs(t, behindHTTP(t, func(
		ctx context.Context, e *idem.Engine, event httpRequest, post poster,
	) (any, error) {
		return idemlambda.HTTPAPI(e, idemhttp.Routes{"POST /payments": once}, idemhttp.Claim("sub"), nil, post)(ctx, event)
	}))
	require.Contains(t, runs, "the caller got a result, and bank: charge has not taken place"+advice)
	lines := runs["a caller got a result, and a later one another result"+advice]
	const alike = `{"statusCode":201,"headers":`
	require.Contains(t, lines, "the caller of delivery 2 gets: "+
		alike+`{"Idempotency-Expires":"Sun, 02 Jan 2000…, and not `+
		alike+`null,"multiValueHeaders":null,"body":"\"… as that of delivery 1`)
}
