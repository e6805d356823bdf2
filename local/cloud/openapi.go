package cloud

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/local/aws/gateway"
)

// openAPI is the definition of an API in OpenAPI, as the transform of AWS SAM writes it too.
type openAPI struct {
	Paths               map[string]map[string]json.RawMessage
	Components          struct{ SecuritySchemes map[string]scheme }
	SecurityDefinitions map[string]scheme // before OpenAPI 3
}

type scheme struct {
	Name       string      // of the header with the token
	AuthType   string      `json:"x-amazon-apigateway-authtype"`
	Authorizer *authorizer `json:"x-amazon-apigateway-authorizer"`
}

// addTo gives an API the routes. Nil has none.
func (o *openAPI) addTo(a *API) error {
	if o == nil {
		return nil
	}
	methods := []string{"delete", "get", "head", "options", "patch", "post", "put", "x-amazon-apigateway-any-method"}
	for path, operations := range o.Paths {
		for method, text := range operations {
			if !slices.Contains(methods, method) { // what concerns all methods
				continue
			}
			var is struct {
				Integration struct{ Type, URI, PayloadFormatVersion string } `json:"x-amazon-apigateway-integration"`
				Auth        struct{ Type string }                            `json:"x-amazon-apigateway-auth"`
				Security    []map[string][]string
			}
			if err := json.Unmarshal(text, &is); err != nil {
				return a.of.fail("%s %s: %w", method, path, err)
			}
			route := strings.ToUpper(method) + " " + path
			if method == methods[len(methods)-1] {
				route = "ANY " + path
			}
			if path == "$default" {
				route = path
			}
			to := Route{Function: functionName(is.Integration.URI)}
			switch kind := strings.ToUpper(is.Integration.Type); {
			case kind == "MOCK" && method == "options": // CORS
				continue
			case kind != "AWS_PROXY" || a.Flavour == gateway.HTTPAPI && is.Integration.PayloadFormatVersion != "2.0":
				return a.of.fail("%s: an integration %s with the payload format %q does not run here: only AWS_PROXY, with 2.0 "+
					"for an HTTP API", route, kind, is.Integration.PayloadFormatVersion)
			}
			switch is.Auth.Type {
			case "", "NONE":
			case "AWS_IAM":
				to.Auth = IAM
			default:
				return a.of.fail("%s: the authorization %s does not run here", route, is.Auth.Type)
			}
			for _, any := range is.Security {
				for name := range any {
					if err := o.authorize(a.of, &to, name); err != nil {
						return err
					}
				}
			}
			a.Routes[route] = to
		}
	}
	return nil
}

// authorize gives a route what a scheme says.
func (o *openAPI) authorize(r *resource, to *Route, name string) error {
	s, ok := o.Components.SecuritySchemes[name]
	if !ok {
		s = o.SecurityDefinitions[name]
	}
	switch {
	case name == "NONE":
	case strings.EqualFold(s.AuthType, "awsSigv4"):
		to.Auth = IAM
	case s.Authorizer != nil:
		by, err := s.Authorizer.read(r)
		if err != nil {
			return err
		}
		if to.Auth, to.Authorizer = JWT, by; by != nil {
			to.Auth = Custom
		}
		if by != nil && by.Token && s.Name != "" {
			by.Sources = []string{"method.request.header." + s.Name}
		}
	default:
		return r.fail("the authorization %s does not run here", name)
	}
	return nil
}
