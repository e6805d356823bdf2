package console_test

import (
	"html"
	"regexp"
	"strings"
)

var (
	around   = regexp.MustCompile(`(?s)^.*<main[^>]*>|</main>.*$`)
	pre      = regexp.MustCompile(`(?s)<pre.*?</pre>|<textarea.*?</textarea>|<blockquote.*?</blockquote>`)
	unchosen = regexp.MustCompile(`<option value="[^"]*">[^<]*</option>|<input type="hidden"[^>]*>`)
	control  = regexp.MustCompile(`<(input|textarea|select|fieldset|button|a)\b([^>]*)>`)
	attr     = regexp.MustCompile(`\s(id|type|value|class|href|aria-describedby|checked)\b(?:="([^"]*)")?`)
	block    = regexp.MustCompile(`<(h1|h2|p|div|dt|tr|section|form|fieldset|nav|pre|blockquote|br)\b[^>]*>`)
	cell     = regexp.MustCompile(`</t[dh]>\s*<t[dh]\b[^>]*>`)
	item     = regexp.MustCompile(`<li[^>]*>\s*(?:<p[^>]*>)?`)
	tag      = regexp.MustCompile(`<[^>]*>`)
	ends     = strings.NewReplacer("</button>", "]", "</dt>", ": ", `<p class="mistake" role="alert"`, "<p>!! <i")
)

// textOf is a page as its reader sees it: a line for each paragraph and each row of a table. A field has its id and
// what is typed, (x) is chosen, a button is in brackets, ! is dangerous, * is required, !! is a mistake or what has it.
func textOf(page string) string {
	page = around.ReplaceAllString(page, "")
	page = pre.ReplaceAllStringFunc(page, func(text string) string { return strings.ReplaceAll(text, "\n", "\x00") })
	page = unchosen.ReplaceAllString(strings.Join(strings.Fields(page), " "), "")
	page = control.ReplaceAllStringFunc(page, shown)
	page = item.ReplaceAllString(page, "<p>- ")
	page = ends.Replace(page)
	page = block.ReplaceAllString(cell.ReplaceAllString(page, " | "), "\n")
	page = strings.ReplaceAll(html.UnescapeString(tag.ReplaceAllString(page, "")), "\x00", "\n")
	var text strings.Builder
	for line := range strings.Lines(page) {
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			text.WriteString(line + "\n")
		}
	}
	return text.String()
}

// shown is what is seen of a field, a button or a link.
func shown(control string) string {
	is := map[string]string{}
	for _, m := range attr.FindAllStringSubmatch(control, -1) {
		is[m[1]] = m[2]
	}
	mistake, danger := "", ""
	if is["aria-describedby"] == "mistake" && strings.Contains(control, ` aria-invalid="true"`) {
		mistake = "!! "
	}
	if strings.Contains(is["class"], "danger") {
		danger = "!"
	}
	choice := "( ) "
	if _, checked := is["checked"]; checked {
		choice = "(x) "
	}
	switch {
	case strings.HasPrefix(control, "<button"):
		return " [" + danger
	case strings.HasPrefix(control, "<a") && strings.Contains(is["href"], "list?"):
		return "(" + is["href"] + ") "
	case strings.HasPrefix(control, "<a"):
		return danger
	case strings.HasPrefix(control, "<fieldset"):
		return "<p>" + mistake
	case is["type"] != "":
		return mistake + choice
	}
	required := ""
	if strings.Contains(control, " required") {
		required = "*"
	}
	return "<p>" + mistake + is["id"] + required + "=" + is["value"]
}
