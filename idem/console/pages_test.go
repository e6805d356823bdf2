package console_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

const (
	// attack is markup that would run, in a text and in an attribute.
	attack = `"><img src=x onerror=alert(1)><script>alert(2)</script>'`
	// formats cannot be seen, or turn round what stands next to them, and turned has characters that end
	// lines or control a terminal too; Go's unicode.IsPrint has none of them.
	formats = "\u202e\u2066\u200f\u200b\u2028\ufeff"
	turned  = formats + "\u0007\u001b[31m\u0085"
)

var (
	quoted  = regexp.MustCompile(`"[^"]*"`)
	running = regexp.MustCompile(`<[^>]*\son[a-z]+\s*=`)
)

// runsNothing checks that a page has no markup of an attacker.
func runsNothing(t *testing.T, page string) {
	require.NotContains(t, page, "<img src=x")
	require.NotContains(t, page, "<script>")
	require.NotContains(t, page, `href="javascript:`)
	require.Empty(t, running.FindAllString(quoted.ReplaceAllString(page, `""`), -1), "attributes that run")
}

// hidesNothing checks that a page has no character that hides or turns another.
func hidesNothing(t *testing.T, page string) {
	hidden := func(c rune) bool { return c != '\n' && !unicode.IsPrint(c) }
	require.Equal(t, -1, strings.IndexFunc(page, hidden), "%q", page)
}

// Whatever the texts of a record and of a decision are, they are no markup, and hide and turn nothing.
func TestNoTextOfARecordIsMarkupOrHidesAnother(t *testing.T) {
	for name, tc := range map[string]struct {
		tenant, text, name string // name is for what has a form: a step, a reference
		check              func(t *testing.T, page string)
		shown              string
	}{
		"markup":     {"t" + attack[:40], attack, attack, runsNothing, "failure &#34;&gt;&lt;img"},
		"an address": {"javascript:alert(1)", attack, attack, runsNothing, "failure &#34;&gt;&lt;img"},
		"formats":    {"acme\u00a0" + turned, turned, formats, hidesNothing, `failure \u202e\u2066\u200f\u200b\u2028\ufeff`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, console.Options{Who: func(*http.Request) (string, error) { return "who" + tc.text, nil }})
			op := idem.Operation{Name: "refund" + tc.text, Values: idem.KeepValues}
			key := op.Key(tc.tenant, "value"+tc.text)
			_, err := idem.Do(t.Context(), r.Engine, key, 1, func(ctx context.Context, _ int) (string, error) {
				require.NoError(t, idem.SetReference(ctx, "ref"+tc.name))
				_, err := idem.Step(ctx, "step"+tc.name, func(context.Context) (string, error) { return "seat" + tc.text, nil },
					&idem.StepConfig[string]{Compensate: func(context.Context, string) error { return errors.New("undo" + tc.text) }})
				require.NoError(t, err)
				return "", idem.Permanent(errors.New("failure " + tc.text))
			})
			require.Error(t, err)
			id := key.ID()
			r.lapse()
			other := url.QueryEscape(tc.text)
			pages := []string{
				"/ops/", "/ops/list", "/ops/list?state=" + other, "/ops/record?id=" + other, "/ops/" + url.PathEscape(tc.text),
				record(id) + "&done=1",
			}
			for _, show := range []string{"", "value", "result", "error", "step:step" + tc.name, tc.text} {
				pages = append(pages, record(id)+"&show="+url.QueryEscape(show))
			}
			for _, to := range []string{"completed", "failed", "released", "forgotten", tc.text} {
				pages = append(pages, act(id, to))
			}
			paused := protocol.Pause{Operation: op.Name, Tenant: tc.tenant}
			pages = append(pages, "/ops/pauses", "/ops/pauses?resume="+url.QueryEscape(paused.ID()), "/ops/pauses?resume="+other)
			require.NoError(t, r.r.Pause(t.Context(), op.Name, tc.tenant, time.Time{},
				reconcile.Change{Actor: "who" + tc.text, Reason: "why" + tc.text}))
			look := func() {
				for _, page := range pages {
					tc.check(t, r.get(page).text)
				}
			}
			look()
			runsNothing(t, r.get("/ops/list?"+url.Values{"operation": {op.Name}, "tenant": {tc.tenant}}.Encode()).text)
			require.Contains(t, r.get(record(id)+"&show=error").text, tc.shown, "the text is there")

			form := r.form(id, "failed")
			for _, field := range []string{"why", "message", "type", "code"} {
				form.Set(field, field+tc.text)
			}
			form.Set("undone", "1")
			form.Set("ref", strings.Repeat(tc.name, 99)) // too long: shown again
			runsNothing(t, r.posts(form, http.StatusUnprocessableEntity, "").text)
			form.Set("ref", tc.name)
			r.posts(form, http.StatusSeeOther, "")
			look()
		})
	}
}

func TestALongTextIsCutOff(t *testing.T) {
	r := newRig(t, console.Options{})
	id := r.end(refund.Key("acme", "r-1"), strings.Repeat("\u00e4", 1<<20), nil)
	a := r.get("/ops/record?" + url.Values{"id": {id}, "show": {"result"}}.Encode())
	require.Equal(t, http.StatusOK, a.StatusCode)
	require.Less(t, len(a.text), 300<<10)
	require.Contains(t, a.text, "2097154 bytes")
	require.Contains(t, a.text, "cut off")
	require.True(t, utf8.ValidString(a.text))
	binary := r.end(refund.Key("acme", "r-2"), json.RawMessage("\"\xff\""), nil)
	require.Contains(t, r.get("/ops/record?"+url.Values{"id": {binary}, "show": {"result"}}.Encode()).text, "(not a text)")
}

func TestWhatCannotBeAnIdIsNotLookedUp(t *testing.T) {
	r := newRig(t, console.Options{})
	r.Faults.Always(idemtest.Refuse)
	for name, id := range map[string]string{
		"too long": "acme#refund#" + strings.Repeat("x", 2048), "not UTF-8": "acme#refund#\xff",
		"a wrong escape": "%zz#refund#x", "two parts": "acme#refund", "four parts": "a#b#c#d",
	} {
		t.Run(name, func(t *testing.T) {
			for _, page := range []string{"record", "act"} {
				a := r.get("/ops/" + page + "?" + url.Values{"id": {id}, "to": {"failed"}}.Encode())
				require.Equal(t, http.StatusBadRequest, a.StatusCode, page)
			}
			require.Equal(t, http.StatusBadRequest, r.post("/ops/find", url.Values{"id": {id}}).StatusCode)
		})
	}
}

func TestListsHavePages(t *testing.T) {
	r := newRig(t, console.Options{})
	for i := range 120 {
		r.end(refund.Key("acme", fmt.Sprint(i)), nil, errCut)
	}
	next := regexp.MustCompile(`<a rel="next" href="([^"]+)"`)
	links := regexp.MustCompile(`<th scope="row"><a class="id" href="([^"]+)"`)
	seen, pages := map[string]bool{}, 0
	for at := "/ops/list?operation=refund"; at != ""; pages++ {
		text := r.get(at).text
		for _, m := range links.FindAllStringSubmatch(text, -1) {
			require.False(t, seen[m[1]], "listed twice")
			seen[m[1]] = true
		}
		at = ""
		if m := next.FindStringSubmatch(text); m != nil {
			at = html.UnescapeString(m[1])
			require.Contains(t, at, "operation=refund", "the filter goes along")
			require.Equal(t, http.StatusBadRequest, r.get("/ops/list?page=0+nonsense").StatusCode, "a page that no list has")
		}
	}
	require.Len(t, seen, 120)
	require.Equal(t, 3, pages)
}

func TestALongHistoryIsShownFromItsEnd(t *testing.T) {
	r := newRig(t, console.Options{})
	id := r.end(refund.Key("acme", "r-1"), 7, nil)
	for n := range 205 {
		by := reconcile.Change{Actor: "bob", Reason: fmt.Sprintf("change %d.", n)}
		require.NoError(t, r.r.Extend(t.Context(), id, r.Clock.Now().Add(time.Duration(n+1000)*time.Hour), by))
	}
	text := r.get(record(id)).text
	require.Contains(t, text, "5 of them")
	require.NotContains(t, text, "change 4.")
	require.Contains(t, text, "change 5.")
	require.Contains(t, text, "change 204.")
}
