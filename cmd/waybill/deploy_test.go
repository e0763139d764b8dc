package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/waybill-run/waybill/deploy/kafka/node"
	"github.com/waybill-run/waybill/internal/instance"
)

// The tests in this file check deploy/ against the program: its command lines and settings must exist.
// internal/instance does the same for the metrics in its alerts and dashboards.

// deployed is a process that a file in deploy/ starts.
type deployed struct {
	where string
	args  []string
	env   map[string]string
}

func deployFile(name string) string { return filepath.Join(repository, "deploy", name) }

// deployYAML reads the documents of a file.
func deployYAML[T any](t *testing.T, name string, options ...yaml.DecodeOption) (documents []T) {
	t.Helper()
	d := yaml.NewDecoder(strings.NewReader(readFile(t, "deploy/"+name)), options...)
	for {
		var document T
		if err := d.Decode(&document); errors.Is(err, io.EOF) {
			return documents
		} else if err != nil {
			t.Fatalf("deploy/%s: %v", name, err)
		}
		documents = append(documents, document)
	}
}

func inCompose(t *testing.T) (all []deployed) {
	t.Helper()
	type service struct {
		Image                        string
		Command, Volumes, Entrypoint []string
		Environment                  map[string]string
		Healthcheck                  struct{ Test []string }
		DependsOn                    map[string]any `yaml:"depends_on"`
	}
	c := deployYAML[struct {
		Services map[string]service
		Volumes  map[string]any
	}](t, "compose.yaml", yaml.AllowDuplicateMapKey())[0] // merged keys may be set again
	for name, s := range c.Services {
		where := "compose.yaml, " + name
		for other := range s.DependsOn {
			if _, there := c.Services[other]; !there {
				t.Errorf("%s depends on %s, which isn't there", where, other)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			_, named := c.Volumes[from]
			if _, err := os.Stat(deployFile(from)); !named && err != nil {
				t.Errorf("%s mounts %s: no volume, and no file", where, from)
			}
		}
		if s.Image != "waybill" {
			continue
		}
		all = append(all, deployed{where, s.Command, s.Environment})
		healthIsAsked(t, where, s.Command[0], s.Healthcheck.Test, s.Environment)
	}
	return all
}

// healthIsAsked reports an error unless a role's health check runs a program of the image, and queries the role's
// probe.
func healthIsAsked(t *testing.T, where, role string, check []string, env map[string]string) {
	t.Helper()
	if role == "topics" || role == "workflow" { // they run to completion
		return
	}
	dockerfile := readFile(t, "deploy/Dockerfile")
	switch {
	case len(check) < 3 || check[0] != "CMD":
		t.Errorf("%s has no health check: %q", where, check)
	case !strings.Contains(dockerfile, " "+check[1]+"\n"):
		t.Errorf("%s: %q: the image has no %s, and no shell", where, check, check[1])
	case check[len(check)-1] != "http://127.0.0.1"+env["WAYBILL_METRICS_LISTEN"]+instance.ReadyPath:
		t.Errorf("%s: its health check asks %q", where, check[len(check)-1])
	}
}

// object is a Kubernetes object, reduced to the fields that must be consistent with others. Whether its other keys are
// valid for the API is tested by hand (docs/operate/kubernetes.md).
type object struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
	Data map[string]string
	Spec struct {
		ServiceName string `yaml:"serviceName"`
		Selector    any    // for a Service: the labels themselves
		Template    struct {
			Metadata struct{ Labels map[string]string }
			Spec     struct {
				Containers []container
				Volumes    []struct{ Name string }
			}
		}
		VolumeClaimTemplates []struct{ Metadata struct{ Name string } } `yaml:"volumeClaimTemplates"`
	}
}

type container struct {
	Name, Image string
	Args        []string
	EnvFrom     []struct {
		ConfigMapRef struct{ Name string } `yaml:"configMapRef"`
	} `yaml:"envFrom"`
	Env   []struct{ Name, Value string }
	Ports []struct {
		Name          string
		ContainerPort int `yaml:"containerPort"`
	}
	StartupProbe   probe `yaml:"startupProbe"`
	LivenessProbe  probe `yaml:"livenessProbe"`
	ReadinessProbe probe `yaml:"readinessProbe"`
	VolumeMounts   []struct {
		Name      string
		MountPath string `yaml:"mountPath"`
	} `yaml:"volumeMounts"`
}

type probe struct {
	HTTPGet struct{ Path, Port string } `yaml:"httpGet"`
}

// probes reports an error unless each probe uses its own path, on a declared port. A container that runs to completion
// has no ports and no probes.
func (c *container) probes(t *testing.T, where string) {
	t.Helper()
	ports := map[string]bool{}
	for _, p := range c.Ports {
		ports[p.Name] = true
	}
	for path, p := range map[string]probe{instance.StartedPath: c.StartupProbe, instance.LivePath: c.LivenessProbe, instance.ReadyPath: c.ReadinessProbe} {
		get := p.HTTPGet
		switch {
		case len(ports) == 0 && get.Path == "":
		case get.Path != path:
			t.Errorf("%s: a probe asks for %q instead of %s", where, get.Path, path)
		case !ports[get.Port]:
			t.Errorf("%s: nothing answers at %s of port %q", where, get.Path, get.Port)
		}
	}
}

func inKubernetes(t *testing.T) (all []deployed) {
	t.Helper()
	kustomization := deployYAML[struct{ Resources []string }](t, "kubernetes/kustomization.yaml")[0]
	var objects []object
	for _, name := range append(kustomization.Resources, "agent-hpa.yaml") {
		objects = append(objects, deployYAML[object](t, "kubernetes/"+name)...)
	}
	config, services := map[string]map[string]string{}, map[string]bool{}
	var pods []map[string]string
	for _, o := range objects {
		switch o.Kind {
		case "ConfigMap":
			config[o.Metadata.Name] = o.Data
		case "Service":
			services[o.Metadata.Name] = true
		}
		if l := o.Spec.Template.Metadata.Labels; l != nil {
			pods = append(pods, l)
		}
	}
	for _, o := range objects {
		where := "kubernetes, " + o.Kind + " " + o.Metadata.Name
		selector, _ := o.Spec.Selector.(map[string]any)
		if match, ok := selector["matchLabels"].(map[string]any); ok {
			selector = match
		}
		if selector != nil && !slices.ContainsFunc(pods, func(labels map[string]string) bool { return selects(selector, labels) }) ||
			o.Spec.Template.Metadata.Labels != nil && selector != nil && !selects(selector, o.Spec.Template.Metadata.Labels) {
			t.Errorf("%s selects %v, which no pod has", where, selector)
		}
		if s := o.Spec.ServiceName; s != "" && !services[s] {
			t.Errorf("%s is of the Service %s, which isn't there", where, s)
		}
		for _, c := range o.Spec.Template.Spec.Containers {
			all = append(all, c.deployed(t, where, o, config))
		}
	}
	return all
}

func selects(selector map[string]any, labels map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// deployed returns the command line of a container, and checks that the objects that it names exist.
func (c *container) deployed(t *testing.T, where string, o object, config map[string]map[string]string) deployed {
	t.Helper()
	d := deployed{where: where, env: map[string]string{}}
	for _, from := range c.EnvFrom {
		if config[from.ConfigMapRef.Name] == nil {
			t.Errorf("%s: there is no ConfigMap %s", where, from.ConfigMapRef.Name)
		}
		maps.Copy(d.env, config[from.ConfigMapRef.Name])
	}
	set := map[string]bool{}
	for _, e := range c.Env {
		set[e.Name], d.env[e.Name] = true, e.Value
	}
	for _, a := range c.Args {
		for _, v := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(a, -1) {
			if !set[v[1]] {
				t.Errorf("%s: %s isn't set", where, v[0])
			}
		}
		d.args = append(d.args, strings.ReplaceAll(a, "$(POD_NAME)", o.Metadata.Name+"-0"))
	}
	if c.Image != "waybill" {
		t.Errorf("%s: image %s", where, c.Image)
	}
	c.probes(t, where)
	volumes := map[string]bool{}
	for _, v := range o.Spec.Template.Spec.Volumes {
		volumes[v.Name] = true
	}
	for _, v := range o.Spec.VolumeClaimTemplates {
		volumes[v.Metadata.Name] = true
	}
	for _, m := range c.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("%s: there is no volume %s", where, m.Name)
		}
	}
	return d
}

// inSystemd returns the instances of the systemd unit that have an example.
func inSystemd(t *testing.T) (all []deployed) {
	t.Helper()
	unit := readFile(t, "deploy/systemd/waybill@.service")
	names, err := filepath.Glob(deployFile("systemd/*.env"))
	if err != nil {
		t.Fatal(err)
	}
	const common = "deploy/systemd/waybill.env"
	set := map[string]string{}
	for _, words := range regexp.MustCompile(`(?m)^Environment=(.*)$`).FindAllStringSubmatch(unit, -1) {
		for kv := range strings.FieldsSeq(words[1]) {
			name, value, _ := strings.Cut(kv, "=")
			set[name] = value
		}
	}
	readEnv(t, common, set)
	start := regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/waybill (.*)$`).FindStringSubmatch(unit)
	if start == nil {
		t.Fatal("the unit doesn't start waybill")
	}
	for _, name := range names {
		name = "deploy/systemd/" + filepath.Base(name)
		if name == common {
			continue
		}
		env := maps.Clone(set)
		readEnv(t, name, env)
		all = append(all, deployed{"systemd, " + filepath.Base(name), strings.Fields(strings.ReplaceAll(start[1], "$ROLE", env["ROLE"])), env})
	}
	return all
}

func readEnv(t *testing.T, name string, set map[string]string) {
	t.Helper()
	setting := regexp.MustCompile(`(?m)^#?([A-Z_]+)=(.*)$`) // includes settings that are commented out
	for _, m := range setting.FindAllStringSubmatch(readFile(t, name), -1) {
		set[m[1]] = m[2]
	}
}

// settled has the command itself parse a command line and its environment.
func (d deployed) settled(t *testing.T) error {
	for name, value := range d.env {
		if strings.HasPrefix(name, envPrefix) {
			t.Setenv(name, value)
		}
	}
	cmd, rest, err := newRoot().Find(d.args)
	if err != nil {
		return err
	}
	if err := tryCommand(d.args, true); err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return applySettings(cmd)
}

func TestDeployStartsWhatIsThere(t *testing.T) {
	for from, all := range map[string][]deployed{"compose": inCompose(t), "Kubernetes": inKubernetes(t), "systemd": inSystemd(t)} {
		roles := map[string]bool{}
		for _, d := range all {
			t.Run(d.where, func(t *testing.T) {
				if err := d.settled(t); err != nil {
					t.Errorf("%q with %v: %v", d.args, d.env, err)
				}
			})
			roles[d.args[0]] = true
		}
		for _, role := range []string{"scheduler", "supervisor", "agent", "console"} {
			if !roles[role] {
				t.Errorf("%s starts no %s", from, role)
			}
		}
	}
}

// TestDeployKeepsNameAndDisk: a restarted process resumes its partitions within its session only if it keeps its
// instance name and its disk.
func TestDeployKeepsNameAndDisk(t *testing.T) {
	for _, d := range slices.Concat(inCompose(t), inKubernetes(t), inSystemd(t)) {
		cmd, rest, err := newRoot().Find(d.args)
		if err != nil || cmd.Flags().Lookup("data-dir") == nil || cmd.HasSubCommands() {
			continue
		}
		for _, flag := range []string{"instance", "data-dir"} {
			if !slices.Contains(rest, "--"+flag) && d.env[envName(flag)] == "" && (flag != "instance" || d.args[0] != "console") {
				t.Errorf("%s: no --%s", d.where, flag)
			}
		}
		if slices.Contains(rest, "--data-dir") && !strings.Contains(fmt.Sprint(rest), "--data-dir /data") {
			t.Errorf("%s: --data-dir of %q is on no volume", d.where, rest)
		}
	}
}

// TestDeployedVersions: the images have the same versions of Kafka and Go as the tests.
func TestDeployedVersions(t *testing.T) {
	for name, want := range map[string]string{
		"deploy/compose.yaml":     `image: apache/kafka:` + regexp.QuoteMeta(node.Version) + `\n`,
		"deploy/Dockerfile":       `FROM golang:` + regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "go.mod"))[1] + ` AS build\n`,
		"docs/operate/systemd.md": regexp.QuoteMeta(regexp.MustCompile(`RUN (CGO_ENABLED=0 go build .*) -o`).FindStringSubmatch(readFile(t, "deploy/Dockerfile"))[1]),
	} {
		if !regexp.MustCompile(want).MatchString(readFile(t, name)) {
			t.Errorf("%s hasn't %s", name, want)
		}
	}
}

// TestDeployedSettings: deployments can be reached, can resolve names, and can be applied repeatedly.
func TestDeployedSettings(t *testing.T) {
	for name, all := range map[string]map[string]bool{ // a pattern, and whether it must match
		"deploy/compose.yaml": {`(?m)^    ports: \["127\.0\.0\.1:8080:8080"\]$`: true,
			`(?m)^  console:\n    <<: \*waybill\n    read_only: false `: true}, // else its configs can't be copied into it
		"deploy/systemd/waybill@.service": {`(?m)^RestrictAddressFamilies=.*\bAF_NETLINK\b`: true, `(?m)^Environment=GOTRACEBACK=crash$`: true},
		"deploy/kubernetes/topics.yaml": {`(?m)^ +ttlSecondsAfterFinished:`: false,
			`(?m)^ +argocd\.argoproj\.io/hook-delete-policy: BeforeHookCreation$`: true,
			`(?m)^ +kustomize\.toolkit\.fluxcd\.io/force: enabled$`:               true},
	} {
		for pattern, want := range all {
			if regexp.MustCompile(pattern).MatchString(readFile(t, name)) != want {
				t.Errorf("%s: that it has %s must be %v", name, pattern, want)
			}
		}
	}
}

// TestComposeVariablesAreNoSettings: variables that compose.yaml itself reads from the environment aren't reported as
// unknown settings by commands in the same shell.
func TestComposeVariablesAreNoSettings(t *testing.T) {
	found := regexp.MustCompile(`\$\{(WAYBILL_\w+)`).FindAllStringSubmatch(readFile(t, "deploy/compose.yaml"), -1)
	if len(found) == 0 {
		t.Fatal("compose.yaml takes nothing from the environment")
	}
	for _, name := range found {
		t.Setenv(name[1], "a-token-of-an-operator")
	}
	if _, err := before(t, []string{"task", "list"}); err != nil {
		t.Error(err)
	}
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	src, err := os.ReadFile(filepath.Join(repository, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(src)
}

func TestAlertsSayWhatToDo(t *testing.T) {
	type rule struct {
		Alert, Expr, For    string
		Labels, Annotations map[string]string
	}
	files := deployYAML[struct {
		Groups []struct {
			Name  string
			Rules []rule
		}
	}](t, "prometheus/rules.yaml", yaml.Strict())
	seen := map[string]bool{}
	for _, g := range files[0].Groups {
		for _, r := range g.Rules {
			if !strings.HasPrefix(r.Alert, "Waybill") || seen[r.Alert] {
				t.Errorf("alert %q: a name of its own that begins with Waybill", r.Alert)
			}
			seen[r.Alert] = true
			if s := r.Labels["severity"]; s != "page" && s != "ticket" || len(r.Labels) != 1 {
				t.Errorf("%s: labels %v, want a severity, page or ticket", r.Alert, r.Labels)
			}
			if r.Annotations["summary"] == "" || len(r.Annotations["description"]) < 80 || len(r.Annotations) != 3 {
				t.Errorf("%s: annotations %v, want a summary, a description with what it means and what to do, and a runbook_url", r.Alert, r.Annotations)
			}
			if url := r.Annotations["runbook_url"]; !strings.HasSuffix(url, "/docs/operate/alerts.md#"+anchorOf(r.Alert)) {
				t.Errorf("%s: runbook_url %q isn't its heading in docs/operate/alerts.md", r.Alert, url)
			}
			for _, m := range regexp.MustCompile("`waybill ([a-z][^`]*)`").FindAllStringSubmatch(r.Annotations["description"], -1) {
				if err := tryCommand(strings.Fields(m[1]), false); err != nil {
					t.Errorf("%s: `waybill %s`: %v", r.Alert, m[1], err)
				}
			}
		}
	}
	if len(seen) < 15 {
		t.Errorf("%d alerts found: the test proves nothing", len(seen))
	}
}

func TestDashboardIsAScreen(t *testing.T) {
	type rectangle struct{ X, Y, W, H int }
	var d struct {
		Panels []struct {
			Title, Description string
			GridPos            rectangle
			Targets            []struct {
				RefID      string
				Datasource struct{ UID string }
			}
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, "deploy/grafana/waybill.json")), &d); err != nil {
		t.Fatal(err)
	}
	taken := map[[2]int]string{}
	for _, p := range d.Panels {
		if p.Description == "" || len(p.Targets) == 0 {
			t.Errorf("%s: no description, or nothing to show", p.Title)
		}
		for _, target := range p.Targets {
			if target.RefID == "" || target.Datasource.UID != "${datasource}" {
				t.Errorf("%s: a target that isn't of the chosen Prometheus", p.Title)
			}
		}
		for x := range p.GridPos.W {
			for y := range p.GridPos.H {
				at := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
				if over := taken[at]; over != "" || at[0] >= 24 {
					t.Errorf("%s lies over %q, or past the edge", p.Title, over)
				}
				taken[at] = p.Title
			}
		}
	}
}
