package console

import (
	"context"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/pause"
)

func TestACrashedRefundIsSettledInTheBrowser(t *testing.T) {
	s := start(t)
	s.busy()
	key := refund.Key("acme", "r-1042")
	b := open(t, s.url)
	b.visit("/")
	b.sees("Open questions")
	eval[bool](b, "window.same = true")

	// The process dies after it has asked the provider. A sweep parks what it left.
	s.Died(key, func(ctx context.Context, _ int) (int, error) {
		require.NoError(t, idem.SetReference(ctx, "re_1042"))
		s.Crash()
		return 0, nil
	})
	s.happens("1m later", "a sweep")
	b.sees("Updated at")
	require.True(t, eval[bool](b, "window.same === true"), "the page was not reloaded")
	b.picture("overview")
	s.happens("20m later", "a sweep")
	_, err := s.call(key, nil)
	require.ErrorIs(t, err, idem.ErrOutcomeUnknown, "the customer waits")

	// The operator finds it by the customer's key, and reads.
	b.fill("find-operation", "refund")
	b.fill("find-tenant", "acme")
	b.fill("find-value", "r-1042")
	b.click("Find")
	b.sees("may have taken effect, and its outcome is unknown")
	b.sees("re_1042")
	b.sees("the sweep has escalated the question to operators.")
	require.NotContains(t, b.text(), "r-1042", "the customer's value is shown to who asks")
	b.picture("record")
	if *update {
		b.do(chromedp.EmulateViewport(1180, 1150))
		png, err := chromedp.Run(b, chromedp.CaptureScreenshot())
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join("..", "..", "..", "idem", "console", "testdata", "record.png"), png,
			0o600))
	}

	// The provider says that it happened.
	b.click("Resolve to completed")
	b.sees("What it does")
	b.picture("completed")
	b.do(chromedp.Click(chromedp.CSS("#known-yes")))
	b.fill("result", `{"number":"re_1042"}`)
	b.fill("ref", "re_1042")
	b.fill("why", "The provider's dashboard shows re_1042 as paid out.")
	b.click("Resolve to completed")
	b.sees("Recorded.")
	b.sees("The recorded result. A message is acknowledged. The handler does not run.")
	b.picture("settled")

	got, err := s.call(key, nil)
	require.NoError(t, err)
	require.Equal(t, receipt{Number: "re_1042"}, got, "the customer has the receipt")
	history, err := s.r.History(t.Context(), key.ID())
	require.NoError(t, err)
	last := history[len(history)-1]
	require.Equal(t, []string{"alice", "console", "The provider's dashboard shows re_1042 as paid out."},
		[]string{last.Who, last.Tool, last.Why})
}

func TestRefundsArePausedInTheBrowser(t *testing.T) {
	s := start(t)
	pauses, err := pause.New(s.Store)
	require.NoError(t, err)
	e, err := idem.New(s.Store, &idem.Options{Pauses: pauses, Now: s.Clock.Now})
	require.NoError(t, err)
	call := func(value string) error {
		_, err := idem.Do(t.Context(), e, refund.Key("acme", value), 1,
			func(context.Context, int) (receipt, error) { return receipt{}, nil })
		return err
	}
	b := open(t, s.url)
	b.visit("/")
	b.click("Pauses")
	b.sees("Nothing is paused.")
	b.fill("operation", "refund")
	b.fill("why", "case 4711: the provider refunds twice")
	b.do(chromedp.Click(`//form//button`, chromedp.NodeVisible))
	b.sees("Paused.")
	b.sees("all calls of refund")
	b.picture("pauses")
	require.ErrorIs(t, call("r-1"), idem.ErrPaused)

	b.visit("/")
	b.sees("Paused: all calls of refund")
	b.click("Pauses")
	b.click("Resume")
	b.sees("Back to the pauses")
	b.fill("why", "case 4711: the provider is repaired")
	b.click("Resume")
	b.sees("Nothing is paused.")
	require.Eventually(t, func() bool { return call("r-1") == nil }, time.Minute, 100*time.Millisecond)
}

func recordPage(id string) string { return "/record?" + url.Values{"id": {id}}.Encode() }

func formPage(id, to string) string { return "/act?" + url.Values{"id": {id}, "to": {to}}.Encode() }

func TestARecordFollowsTheTable(t *testing.T) {
	s := start(t)
	key := refund.Key("acme", "r-1")
	s.Unknown(key)
	b := open(t, s.url)
	b.visit(recordPage(key.ID()))
	b.sees("it can be resolved to released")
	eval[bool](b, "window.same = true")
	eval[any](b, "document.querySelector('#live .decisions a').focus()")

	s.lapse() // time passes
	b.sees("Updated at")
	b.sees("Danger: run it again …")
	require.Equal(t, "Resolve to completed …", eval[string](b, "document.activeElement.innerText"),
		"the focus stays where it was")

	s.Resolve(key.ID(), idem.Released) // somebody decides
	b.sees("the provider says so")
	b.sees("The handler runs, attempt 2")
	require.True(t, eval[bool](b, "window.same === true"), "the page was not reloaded")
	require.Equal(t, "polite", eval[string](b, "document.querySelector('#news[role=status]').ariaLive"),
		"readers of the screen hear of it")
}

func TestAListFollowsTheTable(t *testing.T) {
	s := start(t)
	b := open(t, s.url)
	b.visit("/list?operation=refund")
	b.sees("Nothing fits the filter.")
	b.fill("tenant", "half a na")
	s.Unknown(refund.Key("acme", "r-1"))
	b.sees("unknown")
	require.Equal(t, "half a na", eval[string](b, "document.getElementById('tenant').value"), "what is being typed stays")
}

// A form that changed while somebody fills it in would make a decision about something else.
func TestAFormStaysAndSaysThatThereIsNews(t *testing.T) {
	s, key, b := question(t)
	b.visit(formPage(key.ID(), "failed"))
	b.fill("message", "declined")
	b.fill("why", "the provider says so")
	s.Resolve(key.ID(), idem.Completed)
	b.sees("The record has changed since this page was shown.")
	require.Equal(t, "the provider says so", eval[string](b, "document.getElementById('why').value"))
	b.picture("news")

	before := s.Record(key)
	b.click("Resolve to failed")
	b.sees("The record has been written since it was shown. Nothing was changed.")
	b.picture("stale")
	require.Equal(t, before, s.Record(key))
}
