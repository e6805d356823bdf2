package idemlambda

import "strings"

// withoutStage takes off the stage, which only the API's own endpoint shows: a
// custom domain maps it away.
func withoutStage(path, stage, domain, api string) string {
	if stage == "" || stage == "$default" || api == "" || !strings.HasPrefix(domain, api+".") {
		return path
	}
	rest, ok := strings.CutPrefix(path, "/"+stage)
	switch {
	case ok && rest == "":
		return "/"
	case ok && rest[0] == '/':
		return rest
	}
	return path
}
