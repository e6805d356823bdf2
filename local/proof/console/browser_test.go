package console

import (
	"context"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/story"
)

var update = flag.Bool("update", false, "make the README's picture again")

// within bounds one test in the browser.
const within = 2 * time.Minute

// chromium is the browser that all tests share, each with a profile of its own in it.
var chromium = sync.OnceValues(func() (context.Context, error) {
	path, err := lookUp()
	if err != nil {
		return nil, err
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.WindowSize(1180, 900),
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-background-networking", true),
		chromedp.Flag("host-resolver-rules", "MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"), chromedp.Flag("lang", "en-US"),
	)
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	endBrowser = func() { cancel(); end() }
	return ctx, chromedp.Do(ctx)
})

var endBrowser = func() {}

func TestMain(m *testing.M) {
	flag.Parse()
	code := m.Run()
	endBrowser()
	os.Exit(code)
}

func lookUp() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", exec.ErrNotFound
}

// tab is a page in the browser, with what went wrong in it.
type tab struct {
	context.Context
	t    *testing.T
	base string

	mu       sync.Mutex
	problems []string
	hosts    map[string]bool
}

// open opens a tab for the console at the address.
func open(t *testing.T, base string) *tab {
	t.Helper()
	browser, err := chromium()
	if os.Getenv("IDEM_REQUIRE_BROWSER") == "" && err != nil {
		t.Skipf("no browser: install Debian's package chromium (%v)", err)
	}
	require.NoError(t, err, "IDEM_REQUIRE_BROWSER is set: install Debian's package chromium")
	ctx, cancel := chromedp.NewContext(browser, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	ctx, stop := context.WithTimeout(ctx, within)
	t.Cleanup(stop)
	b := &tab{Context: ctx, t: t, base: base, hosts: map[string]bool{}}
	require.NoError(t, chromedp.Listen(ctx, b.hear))
	must(b, network.Enable, network.EnableParams{})
	must(b, log.Enable, cdp.Empty{})
	t.Cleanup(b.clean)
	return b
}

// must runs a command of the protocol.
func must[P, R any](b *tab, command cdp.Command[P, R], params P) {
	b.t.Helper()
	_, err := chromedp.Call(b, command, params)
	require.NoError(b.t, err)
}

// eval evaluates JavaScript in the page.
func eval[T any](b *tab, js string) T {
	b.t.Helper()
	out, err := chromedp.Run(b, chromedp.Evaluate[T](js))
	require.NoError(b.t, err)
	return out
}

func (b *tab) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		u, err := url.Parse(e.Request.URL)
		if err == nil && u.Scheme != "about" {
			b.hosts[u.Scheme+"://"+u.Host] = true
		}
	case *log.EventEntryAdded:
		if !strings.Contains(e.Entry.Text, "status of 4") { // a refusal that the test asks for
			b.problems = append(b.problems, fmt.Sprintf("%s %s: %s (%s)", e.Entry.Source, e.Entry.Level,
				e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.problems = append(b.problems, "console."+string(e.Type))
	}
}

// clean checks what every test promises: no error, no violation of the policy, and no request to somebody else.
func (b *tab) clean() {
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.problems)
	require.Equal(b.t, map[string]bool{b.base: true}, b.hosts)
}

// do looks for its node again if a page that is followed has been replaced since it was found.
func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	for {
		err := chromedp.Do(b, steps...)
		if err != nil && b.Err() == nil && strings.Contains(err.Error(), "Could not find node with given id") {
			continue
		}
		require.NoError(b.t, err)
		return
	}
}

func (b *tab) visit(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.base + path))
}

// click clicks on the link or button with the text.
func (b *tab) click(text string) {
	b.t.Helper()
	b.do(chromedp.Click(`//*[self::a or self::button][contains(normalize-space(.), "`+text+`")]`, chromedp.NodeVisible))
}

// fill types into the field with the id.
func (b *tab) fill(id, text string) {
	b.t.Helper()
	b.do(chromedp.SendKeys(chromedp.CSS("#"+id), text))
}

// text is what the page shows.
func (b *tab) text() string { return eval[string](b, "document.body ? document.body.innerText : ''") }

// sees waits until the page has one of the texts. A page that is just left has none.
func (b *tab) sees(texts ...string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		now,
			_ := chromedp.Run(b, chromedp.Evaluate[string]("document.readyState === 'complete' ? document.body.innerText : ''"))
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(now, text) })
	}, 20*time.Second, 20*time.Millisecond, "the page lacks %q", texts)
}

// scheme lets the reader prefer light or dark pages.
func (b *tab) scheme(name string) {
	b.t.Helper()
	must(b, emulation.SetEmulatedMedia,
		emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

var pictures = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "idem-console-pictures-") })

// picture takes one of the whole page.
func (b *tab) picture(name string) []byte {
	b.t.Helper()
	png, err := chromedp.Run(b, chromedp.FullScreenshot(100))
	require.NoError(b.t, err)
	dir, err := pictures()
	require.NoError(b.t, err)
	path := filepath.Join(dir, name+".png")
	require.NoError(b.t, os.WriteFile(path, png, 0o600))
	b.t.Log("picture:", path)
	return png
}

// pages of a service that has something of everything, by name.
func (s *service) pages() map[string]string {
	s.busy()
	key := refund.Key("acme", "r-1")
	s.Unknown(key)
	s.lapse()
	s.happens("undoing: order/acme/o-2", "interrupted: order/acme/o-1", "payment: refund-0000000000001", "1m later")
	undone, interrupted := story.Key("order/acme/o-2"), story.Key("order/acme/o-1")
	overHTTP := story.Key("payment//refund-0000000000001")
	replaced := refund.Key("acme", "r-3")
	s.Unknown(replaced)
	s.Resolve(replaced.ID(), idem.Completed)
	ended := refund.Key("acme", "r-2")
	_, err := s.call(ended, nil)
	require.NoError(s.t, err)
	require.NoError(s.t, s.r.Pause(s.t.Context(), "refund", "acme", time.Time{},
		reconcile.Change{Actor: "bob", Reason: "the provider refunds twice"}))
	return map[string]string{
		"pauses": "/pauses", "resume": "/pauses?resume=acme%23refund%23pause",
		"interrupted": recordPage(interrupted.ID()), "steps released": formPage(interrupted.ID(), "released"),
		"overview": "/", "list": "/list", "record": recordPage(key.ID()), "steps": recordPage(undone.ID()),
		"response": formPage(overHTTP.ID(), "completed"), "replaced": formPage(replaced.ID(), "completed"),
		"ended":  recordPage(ended.ID()) + "&show=result",
		"absent": recordPage(refund.Key("acme", "none").ID()), "completed": formPage(key.ID(), "completed"),
		"failed":   formPage(undone.ID(), "failed"),
		"released": formPage(key.ID(), "released"), "forgotten": formPage(ended.ID(), "forgotten"),
		"extended": formPage(ended.ID(), "extended"), "refused": formPage(ended.ID(), "failed"), "no page": "/none",
	}
}

// lowContrast lists texts whose contrast is less than 4.5 to 1, of large ones 3 to 1: WCAG 2.2,
// success criterion 1.4.3, with its formulas.
const lowContrast = `(() => {
  const rgb = (c) => {
    const m = c.match(/[\d.]+/g).map(Number);
    return { c: m.slice(0, 3), a: m.length > 3 ? m[3] : 1 };
  };
  const linear = (v) => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4;
  const lum = (c) => 0.2126 * linear(c[0]) + 0.7152 * linear(c[1]) + 0.0722 * linear(c[2]);
  const behind = (e) => {
    for (; e; e = e.parentElement) {
      const b = rgb(getComputedStyle(e).backgroundColor);
      if (b.a === 1) return b.c;
    }
    return [255, 255, 255];
  };
  const out = []; let seen = 0;
  for (const e of document.body.querySelectorAll("*")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !e.getClientRects().length) continue;
    seen++;
    const s = getComputedStyle(e), a = lum(rgb(s.color).c), b = lum(behind(e));
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), size = parseFloat(s.fontSize);
    if (ratio < (size >= 24 || size >= 18.66 && s.fontWeight >= 700 ? 3 : 4.5))
      out.push(e.tagName + " " + e.textContent.trim().slice(0, 30) + " " + ratio.toFixed(2));
  }
  return { seen, out };
})()`

type contrast struct {
	Seen int      `json:"seen"`
	Out  []string `json:"out"`
}

// Pages are readable in light and dark, wide and at the width of a phone. There only tables scroll sidewise, and
// they can be reached with the keyboard.
func TestPagesAreReadableAndFitTheScreen(t *testing.T) {
	s := start(t)
	pages := s.pages()
	long := idem.Operation{Name: strings.Repeat("o", 128)}.Key(strings.Repeat("t", 64), "l-1")
	s.Unknown(long)
	require.NoError(t, s.r.Resolve(t.Context(), long.ID(),
		reconcile.Resolution{To: idem.Completed, Ref: strings.Repeat("r", 256)},
		reconcile.Change{Actor: strings.Repeat("w", 500), Reason: strings.Repeat("y", 2000)}))
	pages["long"], pages["long form"] = recordPage(long.ID()), formPage(long.ID(), "extended")
	b := open(t, s.url)
	papers := map[string]bool{}
	for _, kind := range []string{"light", "dark", "narrow light", "narrow dark"} {
		scheme, narrow := strings.CutPrefix(kind, "narrow ")
		if b.scheme(scheme); narrow {
			b.do(chromedp.EmulateViewport(400, 800))
		}
		for name, path := range pages {
			b.visit(path)
			got := eval[contrast](b, lowContrast)
			require.Greater(t, got.Seen, 5, name)
			require.Empty(t, got.Out, "%s, %s", name, kind)
			papers[eval[string](b, "getComputedStyle(document.documentElement).backgroundColor")] = true
			b.picture(kind + " " + name)
			if !narrow {
				continue
			}
			require.EqualValues(t, 400, eval[int](b, "document.documentElement.scrollWidth"), "%s, %s", name, kind)
			require.Empty(t, eval[[]string](b,
				`[...document.querySelectorAll("main *, header *, footer *")].filter((e) => !e.closest(".scroll, .skip, .unseen") &&
				(e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== "inline" ||
				e.getBoundingClientRect().right > 400)).map((e) => e.outerHTML.slice(0, 80))`), "%s, %s", name, kind)
			require.Zero(t, eval[int](b, "[...document.querySelectorAll('header a, button, a.button')].filter((e) => "+
				"e.clientHeight > 45 || e.getClientRects().length > 1).length"), "%s: a link or a button is "+
				"broken into lines", name)
			require.Zero(t, eval[int](b, "document.querySelectorAll('table').length "+
				"- document.querySelectorAll('.scroll[tabindex=\"0\"] > table').length"), name)
		}
	}
	require.Len(t, papers, 2, "the pages follow the reader's choice")
}

// What a screen reader gets: every control and every region has a name, and headings and tables their structure.
func TestEveryControlHasAName(t *testing.T) {
	s := start(t)
	pages := s.pages()
	b := open(t, s.url)
	for name, path := range pages {
		t.Run(name, func(t *testing.T) {
			b.visit(path)
			must(b, accessibility.Enable, cdp.Empty{})
			tree, err := chromedp.Call(b, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
			require.NoError(t, err)
			named := 0
			for _, n := range tree.Nodes {
				if n.Ignored || n.Role == nil {
					continue
				}
				switch n.Role.Value.String() {
				case `"link"`, `"button"`, `"textbox"`, `"checkbox"`, `"radio"`, `"combobox"`, `"region"`, `"navigation"`, `"form"`:
					require.NotNil(t, n.Name)
					require.NotEqual(t, `""`, n.Name.Value.String(), "%s without a name", n.Role.Value)
					named++
				}
			}
			require.Greater(t, named, 3)
			require.EqualValues(t, 1, eval[int](b, "document.querySelectorAll('h1').length"))
			require.Zero(t, eval[int](b, "document.querySelectorAll('th:not([scope]), table:not(:has(thead))').length"))
			require.Zero(t, eval[int](b, "document.querySelectorAll('[id]').length - new "+
				"Set([...document.querySelectorAll('[id]')].map((e) => e.id)).size"), "an id twice")
			require.Equal(t, "en", eval[string](b, "document.documentElement.lang"))
		})
	}
}

// typeAt goes to an element with the keyboard alone, and types there.
func (b *tab) typeAt(element, keys string) {
	b.t.Helper()
	b.tabTo(element)
	b.do(chromedp.KeyEvent(keys))
}

// tabTo presses the tabulator until the control is focused that the JavaScript condition about
// e says, and checks that the focus can be seen on the way.
func (b *tab) tabTo(condition string) {
	b.t.Helper()
	for range 60 {
		b.do(chromedp.KeyEvent(kb.Tab))
		if eval[bool](b,
			"document.activeElement !== document.body && getComputedStyle(document.activeElement).outlineStyle === 'none'") {
			require.Fail(b.t, "the focus cannot be seen", eval[string](b, "document.activeElement.outerHTML"))
		}
		if eval[bool](b, "((e) => "+condition+")(document.activeElement)") {
			return
		}
	}
	require.Fail(b.t, "not reached with the keyboard", condition)
}

// All but following works without JavaScript.
func TestAQuestionIsSettledWithTheKeyboardAlone(t *testing.T) {
	for _, scripts := range []bool{true, false} {
		s, key, b := question(t)
		must(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !scripts})
		b.visit("/")
		b.typeAt("e.className === 'skip'", kb.Enter)
		if scripts {
			b.typeAt("e.matches('#live a.id')", kb.Enter)
		} else {
			b.typeAt("e.id === 'find-operation'", "refund")
			b.typeAt("e.id === 'find-tenant'", "acme")
			b.typeAt("e.id === 'find-value'", "r-1"+kb.Enter)
		}
		b.do(chromedp.WaitVisible(chromedp.CSS(".decisions")))
		b.typeAt("e.innerText.startsWith('Resolve to failed')", kb.Enter)
		b.do(chromedp.WaitVisible(chromedp.CSS("#message")))
		b.typeAt("e.id === 'message'", "the card was declined")
		b.typeAt("e.id === 'why'", "declined in the provider's console")
		b.typeAt("e.innerText === 'Resolve to failed'", kb.Enter)
		b.do(chromedp.WaitVisible(chromedp.CSS(".done")))
		require.Equal(t, idem.Failed, s.Record(key).State)
	}
}

func TestAnInterruptedStepIsSettledWithTheKeyboardAndWithoutJavaScript(t *testing.T) {
	s := start(t)
	key := story.Key("order/acme/o-1")
	s.happens("interrupted: order/acme/o-1", "1m later")
	b := open(t, s.url)
	must(b, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true})
	b.visit(formPage(key.ID(), "released"))
	b.do(chromedp.WaitVisible(chromedp.CSS("fieldset.step")))
	b.tabTo("e.id === 'step-0-not'")
	b.do(chromedp.KeyEvent(kb.ArrowDown + kb.ArrowDown)) // it took effect, with a result
	b.typeAt("e.id === 'step-0-result'", "7")
	b.tabTo("e.innerText === 'Show what it would do'")
	b.do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS("#preview")))
	require.Contains(t, b.text(), "skips the steps that are recorded: charge")
	require.Equal(t, idem.InProgress, s.Record(key).State, "nothing was changed yet")
	b.picture("preview")
	b.typeAt("e.id === 'why'", "the provider has the payment")
	b.tabTo("e.innerText === 'Release to the next call'")
	b.do(chromedp.KeyEvent(kb.Enter), chromedp.WaitVisible(chromedp.CSS(".done")))
	require.Equal(t, "the handler runs\nit ships\n7\n", s.Happens("call: order/acme/o-1", nil), "it is not charged twice")
}

// The button of what can repeat an effect looks unlike the others, and reads unlike them.
func TestADangerousDecisionLooksUnlikeTheOthers(t *testing.T) {
	_, key, b := question(t)
	b.visit(recordPage(key.ID()))
	const colours = `Object.fromEntries([...document.querySelectorAll(".decisions a")].map((e) =>
		[e.innerText.split(":")[0], getComputedStyle(e).color]))`
	got := eval[map[string]string](b, colours)
	require.Equal(t, got["Resolve to completed …"], got["Resolve to failed …"])
	require.NotEqual(t, got["Resolve to completed …"], got["Danger"])
	paper := func(to string) string {
		b.visit(formPage(key.ID(), to))
		return eval[string](b, "getComputedStyle(document.querySelector('.buttons button:last-of-type')).backgroundColor")
	}
	require.NotEqual(t, paper("completed"), paper("released"))
}

func TestMarkupOfOthersDoesNotRun(t *testing.T) {
	s := start(t)
	attack := `"><img src="/x" onerror="document.title='ran'"><script>document.title='ran'</script>`
	key := idem.Operation{Name: "refund" + attack, Values: idem.KeepValues}.Key("t<b>", attack)
	_, err := s.call(key, fmt.Errorf("failed: %s", attack))
	require.Error(t, err)
	s.lapse()
	b := open(t, s.url)
	for _, path := range []string{"/", "/list", recordPage(key.ID()) + "&show=value", formPage(key.ID(), "failed")} {
		b.visit(path)
		require.Contains(t, b.text(), attack[2:20], "it is shown as text")
		require.NotEqual(t, "ran", eval[string](b, "document.title"))
		require.EqualValues(t, 1, eval[int](b, "document.images.length + document.scripts.length - 1"),
			"only the console's own")
	}
}
