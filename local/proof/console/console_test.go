package console

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
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
	s.crash(key)
	s.lapse()
	s.sweep()
	b.sees("Updated at")
	require.True(t, eval[bool](b, "window.same === true"), "the page was not reloaded")
	b.picture("overview")
	s.Clock.Advance(20 * 60e9)
	s.sweep()
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
		require.NoError(t, os.WriteFile(filepath.Join("..", "..", "..", "idem", "console", "testdata", "record.png"), png, 0o600))
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
	b.sees("The recorded result. The handler does not run.")
	b.picture("settled")

	got, err := s.call(key, nil)
	require.NoError(t, err)
	require.Equal(t, receipt{Number: "re_1042"}, got, "the customer has the receipt")
	history, err := s.r.History(t.Context(), key.ID())
	require.NoError(t, err)
	last := history[len(history)-1]
	require.Equal(t, []string{"console", "console", "The provider's dashboard shows re_1042 as paid out."}, []string{last.Who, last.Tool, last.Why})
}
