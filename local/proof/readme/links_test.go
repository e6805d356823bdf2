package readme

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fenced   = regexp.MustCompile("(?ms)^```.*?^```$")
	notASlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// pages are all Markdown files of the repository.
func pages(t *testing.T) []string {
	names := tracked(t, "*.md")
	require.Contains(t, names, "README.md")
	return names
}

// anchors are the names by which a page's headings can be linked to.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		slug := notASlug.ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, page), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			info, err := os.Stat(filepath.Join(root, file))
			require.NoError(t, err, "%s links to %s, which is not there", page, m[1])
			if anchor == "" {
				continue
			}
			require.False(t, info.IsDir(), "%s links to a heading of the folder %s", page, target)
			require.True(t, anchors(read(t, file))[anchor], "%s links to %s: there is no such heading", page, m[1])
		}
	}
}
