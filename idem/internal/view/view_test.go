package view

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

func TestSpansHaveTwoUnits(t *testing.T) {
	for d, want := range map[time.Duration]string{
		59 * time.Second: "59s", 90 * time.Second: "1m30s", 2*time.Hour + 3*time.Minute: "2h03m",
		49 * time.Hour: "2d01h", -time.Hour: "1h00m",
	} {
		require.Equal(t, want, Span(d))
	}
	now := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	require.Equal(t, "now", Ago(now, now))
	require.Equal(t, "in 1m00s", Ago(now.Add(time.Minute), now))
	require.Equal(t, "1m00s ago", Ago(now.Add(-time.Minute), now))
}

func TestNothingHiddenIsShownAsItIs(t *testing.T) {
	require.Equal(t, "a\\u001b[2Jb\\u202ec\u00a0d\n\té", Plain("a\x1b[2Jb\u202ec\u00a0d\n\té"))
}

func TestNamesThatDifferLookDifferent(t *testing.T) {
	for name, want := range map[string]string{
		"globex": "globex", "the globex corp": "the globex corp", "globex\n": "globex\\u000a", " globex": "\\u0020globex",
		"globex ": "globex\\u0020", "globex\u00a0": "globex\\u00a0", "the  globex": "the \\u0020globex",
		"a\tb\u2003c": "a\\u0009b\\u2003c", "\u202eglobex": "\\u202eglobex", " ": "\\u0020", `a\u0020b`: `a\u005cu0020b`,
		"acme\u3164": "acme\\u3164",
	} {
		require.Equal(t, want, Name(name))
	}
}

// The provider knows an interrupted step by the step's own token.
func TestTokensOfInterruptedStepsComeFirst(t *testing.T) {
	rec := &idem.Record{ID: "acme#order#1", Steps: map[string]protocol.RecordedStep{
		"charge": {Begun: true}, "reserve": {Compensates: true},
	}}
	v := Of(rec, Reveal{})
	require.Equal(t, []Token{
		{protocol.Token(rec.ID, "charge"), "of step charge, which was interrupted"},
		{protocol.Token(rec.ID, ""), "outside steps"},
	}, v.Tokens())
	require.Equal(t, []string{"charge"}, v.Interrupted())
	require.Equal(t, "begun, without outcome", v.Steps[0].Text())
	require.Equal(t, "done, has a compensation that has not run", v.Steps[1].Text())
	require.True(t, v.Steps[1].HasResult)
	rec.Steps = nil
	require.Equal(t, []Token{{Token: protocol.Token(rec.ID, "")}}, Of(rec, Reveal{}).Tokens())
}

func TestValuesAndTextsOfErrorsAreShownIfTheyAreAskedFor(t *testing.T) {
	rec := &idem.Record{
		ID: "acme#order#1", State: idem.Failed, Value: "o-1",
		Failure: &idem.Failure{Type: "declined", Code: "51", Message: "no money"},
	}
	v := Of(rec, Reveal{})
	require.Empty(t, v.Value)
	require.Equal(t, "declined (code 51)", v.Failure.Text())
	v = Of(rec, Reveal{ShowValue: true, ShowResult: true})
	require.Equal(t, "o-1", v.Value)
	require.Equal(t, "declined (code 51): no money", v.Failure.Text())
	rec.State = idem.Released
	require.Empty(t, Of(rec, Reveal{ShowResult: true}).Failure.Message)
}

// A change of a newer version is shown, too.
func TestEveryChangeHasWords(t *testing.T) {
	for _, c := range []protocol.Change{
		protocol.ChangeParked, protocol.ChangeResolved, protocol.ChangeEscalated, protocol.ChangeExtended,
		protocol.ChangeForgotten, protocol.ChangeRequeued, protocol.ChangePaused, protocol.ChangeResumed,
		protocol.ChangeUnreadable, "moved",
	} {
		for _, unconfirmed := range []bool{false, true} {
			what, text := Change(protocol.Audit{
				Change: c, From: idem.Unknown, To: idem.Failed, Attempt: 2, What: "message m-1", Unconfirmed: unconfirmed,
			})
			require.NotEmpty(t, what)
			require.Regexp(t, `^[a-z].*\.$`, text)
		}
	}
}

func TestATypedResponseIsOne(t *testing.T) {
	res, err := TypedResponse(201, []string{"content-type: text/plain", "Link: </a>", " Link: </b> "}, []byte("paid"))
	require.NoError(t, err)
	shown := ResponseOf(res)
	require.Equal(t, []string{"HTTP 201 Created", "Content-Type: text/plain", "Link: </a>", "Link: </b>"}, shown.Head())
	require.Equal(t, "paid", shown.Body)
	for _, line := range []string{"nonsense", "a b: c", "Link : </b>", ": c", "X-A\r\nX-B: 1", ""} {
		_, err := TypedResponse(201, []string{line}, nil)
		require.ErrorContains(t, err, "is no header", line)
	}
	_, err = TypedResponse(201, []string{"content-length: 3"}, []byte("paid"))
	require.ErrorContains(t, err, "follows from the body")
	for _, status := range []int{0, 100, 600} {
		_, err := TypedResponse(status, nil, nil)
		require.ErrorContains(t, err, "200 to 599")
	}
}

func TestAResponseThatIsDeclaredAsJSONIsJSON(t *testing.T) {
	for _, kind := range []string{"application/json", "Application/JSON; charset=utf-8", "application/problem+json"} {
		_, err := TypedResponse(201, []string{"content-type: " + kind}, []byte(`{"id":`))
		require.ErrorContains(t, err, "not JSON", kind)
		res, err := TypedResponse(201, []string{"Content-Type: " + kind}, []byte(`{"id":1}`))
		require.NoError(t, err)
		require.Empty(t, ResponseOf(res).Doubt())
		res, err = TypedResponse(201, []string{"Content-Type: " + kind}, nil)
		require.NoError(t, err)
		require.Contains(t, ResponseOf(res).Doubt(), "no body")
	}
	for body, doubt := range map[string]string{"{": "no Content-Type", "\xff": "no Content-Type", "": ""} {
		res, err := TypedResponse(201, nil, []byte(body))
		require.NoError(t, err)
		require.Contains(t, ResponseOf(res).Doubt(), doubt)
	}
	res, err := TypedResponse(200, []string{"Content-Type: text/plain"}, []byte("{"))
	require.NoError(t, err)
	require.Empty(t, ResponseOf(res).Doubt())
}

func TestAResolutionSaysWhoMadeItAndWhy(t *testing.T) {
	at := time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)
	resolved := protocol.Audit{ID: "acme#order#1", Change: protocol.ChangeResolved, From: idem.Unknown, To: idem.Released,
		Attempt: 1, At: at, Who: "bob", Why: "a guess", Ref: "re_1",
		Steps: map[string]protocol.StepVerdict{"charge": protocol.StepNotExecuted}}
	history := []protocol.Audit{{Change: protocol.ChangeParked}, resolved, {Change: protocol.ChangeExtended}}
	require.Equal(t, "from unknown to released, attempt 1, at 2026-03-02 09:00:00Z by bob, reference re_1, "+
		"because: a guess. Step charge had no effect. Token: "+protocol.Token("acme#order#1", "charge"), Resolution(history))
	require.Contains(t, Resolution(history[:1]), "which the history no longer has")
	first := Resolution(history)
	resolved.Unconfirmed, resolved.To, resolved.Why = true, idem.Completed, "another guess"
	both := Resolution(append(history, resolved))
	require.Contains(t, both, first+". After it, unconfirmed, it may not have been made: from unknown to completed")
	require.Contains(t, both, "because: another guess")
}

func TestTheProvidersAnswerIsPartOfTheReason(t *testing.T) {
	require.Equal(t, "case 1; the provider says: none", Why("case 1", " none "))
	require.Equal(t, "case 1", Why("case 1", " "))
	require.Equal(t, " ", Why(" ", "none"), "no reason")
}
