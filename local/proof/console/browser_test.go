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

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "make the README's picture anew")

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
		chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true), chromedp.Flag("disable-background-networking", true),
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
			b.problems = append(b.problems, fmt.Sprintf("%s %s: %s (%s)", e.Entry.Source, e.Entry.Level, e.Entry.Text, e.Entry.URL))
		}
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, e.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.problems = append(b.problems, "console."+string(e.Type))
	}
}

// clean checks what every test promises: no error, no violation of the policy, and no request
// to somebody else.
func (b *tab) clean() {
	b.mu.Lock()
	defer b.mu.Unlock()
	require.Empty(b.t, b.problems)
	require.Equal(b.t, map[string]bool{b.base: true}, b.hosts)
}

// do looks for its node anew if a page that is followed has been replaced since it was found.
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
		now, _ := chromedp.Run(b, chromedp.Evaluate[string]("document.readyState === 'complete' ? document.body.innerText : ''"))
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(now, text) })
	}, 20*time.Second, 20*time.Millisecond, "the page lacks %q", texts)
}

// scheme lets the reader prefer light or dark pages.
func (b *tab) scheme(name string) {
	b.t.Helper()
	must(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
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
