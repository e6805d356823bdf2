package infra

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

// Settings of the example app. They come from CDK's context; each field's comment
// has its name there.
type Settings struct {
	// Account and Region to deploy to (account, region). Empty means those of the
	// command line's credentials; the templates then fit everywhere.
	Account, Region string
	// Prefix of the stacks' names (prefix).
	Prefix string
	// Authorizer of the API (authorizer): iam, jwt or none. Empty means iam.
	Authorizer string
	// Issuer and Audience of the tokens (issuer, audience). Several audiences are
	// separated by commas. For jwt.
	Issuer, Audience string
	// Tenant is the claim that holds the tenant (tenant). Empty means sub. For jwt.
	Tenant string
	// Provider is the URL of the payment provider (provider).
	Provider string
	// Tracing turns X-Ray on (tracing): true or false.
	Tracing bool
}

// byName are the fields that are texts, by their names in the context.
func (s *Settings) byName() map[string]*string {
	return map[string]*string{
		"account": &s.Account, "region": &s.Region, "prefix": &s.Prefix, "authorizer": &s.Authorizer, "issuer": &s.Issuer,
		"audience": &s.Audience, "tenant": &s.Tenant, "provider": &s.Provider,
	}
}

const tracing = "tracing"

// SettingNames are the names of the example app's settings in the context.
func SettingNames() []string {
	names := append(slices.Collect(maps.Keys((&Settings{}).byName())), tracing)
	slices.Sort(names)
	return names
}

// SettingsOf reads the settings from an app's context and checks them.
func SettingsOf(app constructs.Construct) (*Settings, error) {
	s := &Settings{}
	get := func(name string) string {
		v := app.Node().TryGetContext(&name)
		if v == nil {
			return ""
		}
		return strings.TrimSpace(fmt.Sprint(v))
	}
	for name, field := range s.byName() {
		*field = get(name)
	}
	traced := get(tracing)
	s.Tracing = traced == "true"
	problems := s.check()
	if !s.Tracing && traced != "false" && traced != "" {
		problems = append(problems, fmt.Errorf("tracing is %q: use true or false", traced))
	}
	return s, errors.Join(problems...)
}

func (s *Settings) check() (problems []error) {
	invalid := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	s.Authorizer = cmp.Or(s.Authorizer, "iam")
	switch s.Authorizer {
	case "iam", "none":
		if s.Tenant != "" {
			invalid("tenant is %q: it is for the authorizer jwt; leave it out", s.Tenant)
		}
	case "jwt":
		if s.Issuer == "" {
			invalid("issuer is missing: the authorizer jwt needs the URL of the tokens' issuer")
		}
		if len(s.audiences()) == 0 {
			invalid("audience is missing: the authorizer jwt needs what the tokens are made for")
		}
	default:
		invalid("authorizer is %q: use iam, jwt or none", s.Authorizer)
	}
	if s.Authorizer != "jwt" && s.Issuer+s.Audience != "" {
		invalid("issuer and audience are for the authorizer jwt: leave them out")
	}
	if (s.Account == "") != (s.Region == "") {
		invalid("account and region belong together: give both, or none")
	}
	if s.Provider != "" && !strings.HasPrefix(s.Provider, "https://") {
		invalid("provider is %q: use an https URL", s.Provider)
	}
	return problems
}

// audiences are those of the tokens, without those that are empty.
func (s *Settings) audiences() []string {
	return strings.FieldsFunc(s.Audience, func(c rune) bool { return c == ',' || c == ' ' })
}

// tenantSetting is the payments function's setting for the tenant.
func (s *Settings) tenantSetting() string {
	if s.Authorizer != "jwt" {
		return s.Authorizer
	}
	return "jwt:" + cmp.Or(s.Tenant, "sub")
}

func (s *Settings) stack(name, description string) *awscdk.StackProps {
	p := &awscdk.StackProps{StackName: jsii.String(s.Prefix + name), Description: &description}
	if s.Account != "" {
		p.Env = &awscdk.Environment{Account: &s.Account, Region: &s.Region}
	}
	return p
}
