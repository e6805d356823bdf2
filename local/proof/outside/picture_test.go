package outside

import (
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "make the pictures of the page again; needs Chromium")

const (
	terminalPicture = local + "/testdata/terminal.svg"
	consolePicture  = local + "/testdata/console.png"
)

// picture takes the picture of a page of the console.
func picture(t *testing.T, url string) {
	if !*update {
		return
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(900, 956))
	allocator, end := chromedp.NewExecAllocator(t.Context(), options...)
	defer end()
	ctx, cancel := chromedp.NewContext(allocator)
	defer cancel()
	require.NoError(t, chromedp.Do(ctx, chromedp.EmulateViewport(900, 956), chromedp.Navigate(url),
		chromedp.WaitVisible(chromedp.CSS(".decisions"))))
	_, err := chromedp.Run(ctx, chromedp.Evaluate[any]("document.querySelector('.who').remove()")) // who makes the picture
	require.NoError(t, err)
	png, err := chromedp.Run(ctx, chromedp.CaptureScreenshot())
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(consolePicture, png, 0o644))
}

var (
	// progress is what a start prints that depends on the machine.
	progress = regexp.MustCompile(`^ +.*( \.\.\.|still .*|ready after .*|starting DynamoDB Local .*)$`)
	// other is what is different each time, or on a busy machine: retries, and times.
	other = regexp.MustCompile(`eyJ[\w.-]+|[0-9a-f]{8}-[0-9a-f-]{27}|[\w+/]{15}=|\d{3} replayed|\d+ calls?|` +
		`(\d+(\.\d+)?(ms|µs|[hms])?)+`)
)

// columns of the picture, and the end of a line that has more.
const columns, cut = 116, " …"

// printed are the lines of the terminal without progress.
func printed(said string) (all []string) {
	for line := range strings.Lines("$ go tool local up @local.flags\n" + said) {
		if line = strings.TrimRight(line, "\n"); progress.MatchString(line) {
			continue
		}
		all = append(all, line)
	}
	return all
}

// requireTerminal holds the picture of the terminal to what was printed, or makes it.
func requireTerminal(t *testing.T, said string) {
	lines := printed(said)
	if *update {
		require.NoError(t, os.WriteFile(terminalPicture, []byte(svg(lines)), 0o644))
	}
	file, err := os.ReadFile(terminalPicture)
	require.NoError(t, err)
	var has struct {
		Lines []string `xml:"text"`
	}
	require.NoError(t, xml.Unmarshal(file, &has))
	require.Greater(t, len(has.Lines), 20)
	for _, line := range has.Lines {
		line, _ := strings.CutSuffix(other.ReplaceAllString(line, "?"), cut)
		require.True(t, slices.ContainsFunc(lines, func(printed string) bool {
			return strings.HasPrefix(other.ReplaceAllString(printed, "?"), line)
		}), "the picture has a line that is not printed: %s\n%s", line, said)
	}
}

// svg is a picture of a terminal.
func svg(lines []string) string {
	const height, top = 16, 22
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="860" height="%d" `, top+height*len(lines))
	b.WriteString(`font-family="monospace" font-size="12">` + "\n" +
		`<rect width="100%" height="100%" rx="6" fill="#1e1e1e"/>` + "\n")
	for i, line := range lines {
		if runes := []rune(line); len(runes) > columns {
			line = string(runes[:columns])
			line = line[:strings.LastIndex(line, " ")] + cut
		}
		fmt.Fprintf(&b, `<text x="12" y="%d" fill="#ddd" xml:space="preserve">`, top+height*i)
		_ = xml.EscapeText(&b, []byte(line)) // a builder takes all
		b.WriteString("</text>\n")
	}
	return b.String() + "</svg>\n"
}
