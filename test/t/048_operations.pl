# The files in monitoring/, with the programs that read them: postgres_exporter runs the queries on
# a real server, promtool tests the rules, and Prometheus scrapes and evaluates everything that the
# rules and the dashboard query.  Everything that doc/operations.md names exists.

use strict;
use warnings;

use FindBin;
use lib "$FindBin::Bin/../perl";
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use Time::HiRes qw(time usleep);

use ZklockTest;

my $monitoring = "$FindBin::Bin/../../monitoring";
my $page = slurp_file("$FindBin::Bin/../../doc/operations.md");
my ($promtool, $prometheus, $exporter) = map { my $program = $_; (grep { -x } map { "$_/$program" } split /:/, $ENV{PATH})[0] }
  'promtool', 'prometheus', 'prometheus-postgres-exporter';
my $http = HTTP::Tiny->new(timeout => 10);
my $json = JSON::PP->new->utf8;
my $tmp = PostgreSQL::Test::Utils::tempdir;

sub quiet { my ($out, $err) = PostgreSQL::Test::Utils::run_command([@_]); return ($? == 0, "$out$err"); }

sub wait_for
{
	my ($what, $test) = @_;
	my $until = time + $PostgreSQL::Test::Utils::timeout_default;
	until ($test->())
	{
		die "timed out waiting for: $what" if time > $until;
		usleep(100_000);
	}
	return;
}

# --- the rules and their tests -----------------------------------------------------------------

my $rules = slurp_file("$monitoring/alerts.yaml");
my $rule_tests = slurp_file("$monitoring/alerts_test.yaml");
my @alerts = $rules =~ /^\s+- alert: (\w+)$/mg;
cmp_ok(scalar(@alerts), '>', 5, 'there are alerts');
foreach my $alert (@alerts)
{
	like($rule_tests, qr/- \{ alertname: $alert, eval_time: \d+m, exp_alerts: \[\] \}/, "$alert: a test in which it does not fire");
	like($rule_tests, qr/- alertname: $alert\n\s+eval_time: \d+m\n\s+exp_alerts:\n\s+- exp_labels:/, "$alert: a test in which it does");
}
is(join(' ', sort $page =~ /`(Zklock\w+)`(?=[^\n]*\|[^\n]*\|[^\n]*\|$)/mg), join(' ', sort @alerts), 'the page tells what to do about each');

SKIP:
{
	skip 'there is no promtool', 2 + @alerts unless $promtool;
	my ($ok, $said) = quiet($promtool, 'check', 'rules', "$monitoring/alerts.yaml");
	ok($ok, 'promtool: the rules are valid') or diag($said);
	($ok, $said) = quiet($promtool, 'test', 'rules', "$monitoring/alerts_test.yaml");
	ok($ok, 'promtool: the rules pass their tests') or diag($said);

	# The tests find a rule that never fires.
	append_to_file("$tmp/alerts_test.yaml", $rule_tests);
	foreach my $alert (@alerts)
	{
		unlink "$tmp/alerts.yaml";
		append_to_file("$tmp/alerts.yaml", $rules =~ s/(- alert: $alert\n\s+expr: )[^\n]*/$1vector(0) > 1/r);
		($ok) = quiet($promtool, 'test', 'rules', "$tmp/alerts_test.yaml");
		ok(!$ok, "$alert: its test can fail");
	}
}

# --- the dashboard, as far as it can be checked without Grafana -----------------------------------

my $dashboard = $json->decode(slurp_file("$monitoring/grafana.json"));
ok(defined $dashboard->{$_}, "dashboard: $_") foreach qw(title uid schemaVersion time templating panels);
my (%ids, %cells, @bad, @expressions);
foreach my $panel (@{ $dashboard->{panels} })
{
	my ($x, $y, $w, $h) = @{ $panel->{gridPos} }{qw(x y w h)};
	push @bad, "id $panel->{id}" if $ids{ $panel->{id} }++;
	push @bad, "$panel->{title}: not on the grid" if $x + $w > 24;
	foreach my $cell (map { my $column = $_; map { "$column,$_" } $y .. $y + $h - 1 } $x .. $x + $w - 1)
	{
		push @bad, "$panel->{title}: over another panel" if $cells{$cell}++ == 1;
	}
	push @bad, "$panel->{title}: fields" if grep { !defined $panel->{$_} } qw(type title datasource fieldConfig targets);
	push @bad, "$panel->{title}: data source" if grep { $_->{datasource}{uid} ne '${datasource}' } $panel, @{ $panel->{targets} };
	push @expressions, map { $_->{expr} } @{ $panel->{targets} };
}
is(join("\n", @bad), '', 'dashboard: panels');
cmp_ok(scalar(@expressions), '>', 15, 'dashboard: queries');
is_deeply([ sort map { $_->{name} } @{ $dashboard->{templating}{list} } ], [ 'datasource', 'instance' ], 'dashboard: variables');

# --- what the exporter prints ------------------------------------------------------------------

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('a', $zk, 'zklock.session_timeout' => '20s', 'zklock.leader_of' => '/led', 'zklock.allowed_paths' => '');
$node->safe_psql('postgres', q{CREATE ROLE exporter LOGIN; GRANT pg_monitor TO exporter; ALTER ROLE postgres SET zklock.allowed_paths = '*'});
$node->wait_until(q{SELECT zk_is_leader('/led')});
my ($holder, $waiter) = map { $node->backend } 1 .. 2;
$holder->query(q{SELECT zk_lock_acquire('/seen')});
$waiter->send(q{SELECT zk_lock_acquire('/seen')});
$node->wait_for_waiter('/seen', 1);
$holder->query(q{SELECT zk_lock_acquire('/tried'), zk_lock_release('/tried')});
$holder->query(q{SELECT zk_run_once('/job', now() - interval '1 hour'), zk_lock_release('/job')});

my @running;
sub start_program
{
	my ($name, @command) = @_;
	my $log = "$tmp/$name.log";
	my $run = IPC::Run::start(\@command, '<', \undef, '>', $log, '2>&1');
	push @running, $run;
	return $log;
}
sub fetch { my ($url) = @_; my $answer = $http->get($url); return $answer->{success} ? $answer->{content} : ''; }

# The first sample of each name and each set of labels; the exporter adds "server" to all.
sub value_of
{
	my ($metrics, $name, $label) = @_;
	$label //= '';
	return $metrics =~ /^\Q$name\E\{[^}]*$label[^}]*\} (\S+)$/m ? $1 + 0 : undef;
}

SKIP:
{
	skip 'there is no postgres_exporter', 1 unless $exporter;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	local $ENV{DATA_SOURCE_NAME} = 'host=' . $node->host . ' port=' . $node->port . ' user=exporter dbname=postgres sslmode=disable';
	my $log = start_program('exporter', $exporter, "--web.listen-address=127.0.0.1:$port", '--disable-default-metrics',
		'--disable-settings-metrics', "--extend.query-path=$monitoring/postgres_exporter.yaml");
	my $metrics = '';
	wait_for('the exporter', sub { ($metrics = fetch("http://127.0.0.1:$port/metrics")) =~ /^zklock_status_connected/m });
	is(value_of($metrics, 'zklock_status_connected'), 1, 'exporter: connected');
	is(value_of($metrics, 'zklock_status_in_doubt'), 0, 'exporter: not in doubt');
	cmp_ok(value_of($metrics, 'zklock_status_safe_seconds'), '>', 0, 'exporter: safe');
	is(value_of($metrics, 'zklock_claims_held'), 1, 'exporter: a leadership does not count');
	is(value_of($metrics, 'zklock_claims_waiting'), 1, 'exporter: a waiter');
	cmp_ok(value_of($metrics, 'zklock_claims_longest_wait_seconds'), '>', 0, 'exporter: has waited');
	is(value_of($metrics, 'zklock_locks_acquired_total'), 4, 'exporter: grants');
	is(value_of($metrics, 'zklock_leadership_leads', 'path="/led"'), 1, 'exporter: leads');
	is(value_of($metrics, 'zklock_job_failed', 'path="/job"'), 0, 'exporter: a job');
	cmp_ok(value_of($metrics, 'zklock_job_tick_age_seconds', 'path="/job"'), '>=', 3600, 'exporter: its tick');
	is(value_of($metrics, 'zklock_exporter_sees_all_paths'), 1, 'exporter: sees all paths, although the server denies them by default');
	is(value_of($metrics, 'zklock_path_acquired_total', 'path="/tried"'), 1, 'exporter: of a path');
	cmp_ok(value_of($metrics, 'zklock_requests_total', 'kind="create"'), '>=', 3, 'exporter: requests');
	cmp_ok(value_of($metrics, 'zklock_answer_seconds_count'), '>', 5, 'exporter: answers');
	is(value_of($metrics, 'zklock_answer_seconds_bucket', 'le="\+Inf"'), value_of($metrics, 'zklock_answer_seconds_count'),
		'exporter: as a histogram');
	is(value_of($metrics, 'zklock_answer_seconds_bucket', 'le="10"'), value_of($metrics, 'zklock_answer_seconds_count'),
		'exporter: in seconds');
	is(value_of($metrics, 'pg_exporter_user_queries_load_error') // 0, 0, 'exporter: the file is valid');
	is(join('', grep { /level=(?:warn|error)/ } split /^/, slurp_file($log)), '', 'exporter: no query fails');
	my %type = $metrics =~ /^# TYPE (zklock_\w+) (\w+)$/mg;
	is(join(' ', grep { ($type{$_} eq 'counter') != /_total$/ } sort keys %type), '', 'exporter: counters, and only they, are totals');

	my %printed = map { $_ => 1 } $metrics =~ /^(zklock_\w+)[ {]/mg;
	my %asked = map { $_ => 1 } map { /\b(zklock_\w+)/g } @expressions, $rules =~ /^\s+expr: (.*)$/mg;
	is(join(' ', grep { !$printed{$_} } sort keys %asked), '', 'rules and dashboard ask for what it prints');

	# --- Prometheus evaluates all of it --------------------------------------------------------

	skip 'there is no prometheus', 1 unless $prometheus;
	append_to_file("$tmp/prometheus.yaml", <<"END");
global: { scrape_interval: 5s, evaluation_interval: 1s }
rule_files: [ $monitoring/alerts.yaml ]
scrape_configs:
  - job_name: zklock
    static_configs:
      - { targets: [ '127.0.0.1:$port' ], labels: { instance: a } }
END
	my $at = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	start_program('prometheus', $prometheus, "--config.file=$tmp/prometheus.yaml", "--storage.tsdb.path=$tmp/data",
		"--web.listen-address=$at");
	my $ask = sub {
		my ($what, %parameters) = @_;
		my $answer = fetch("http://$at/api/v1/$what?" . $http->www_form_urlencode(\%parameters));
		return length $answer ? $json->decode($answer) : { status => '' };
	};
	wait_for('two scrapes', sub {
		my $answer = $ask->('query', query => 'min(count_over_time(zklock_path_wait_seconds_total[1m]))');
		return $answer->{status} eq 'success' && @{ $answer->{data}{result} } && $answer->{data}{result}[0]{value}[1] >= 2;
	});
	foreach my $expression (@expressions)
	{
		my $query = $expression =~ s/\$instance/.*/gr =~ s/\$__rate_interval/1m/gr;
		my $answer = $ask->('query', query => $query);
		ok($answer->{status} eq 'success' && @{ $answer->{data}{result} }, "dashboard: $expression");
	}
	wait_for('the rules to be evaluated', sub {
		my $answer = $ask->('rules');
		return !grep { $_->{health} eq 'unknown' } map { @{ $_->{rules} } } @{ ($answer->{data} // { groups => [ { rules => [ { health => 'unknown' } ] } ] })->{groups} };
	});
	my @loaded = map { @{ $_->{rules} } } @{ $ask->('rules')->{data}{groups} };
	is(join(' ', map { $_->{name} } grep { $_->{health} eq 'ok' && $_->{state} eq 'inactive' } @loaded), join(' ', @alerts),
		'all rules can be evaluated, and none fires where all is well');
}
foreach my $run (@running)
{
	$run->signal('TERM');
	$run->finish;
}
$holder->query('SELECT zk_lock_release_all()');
$waiter->result;

# --- what the page names ---------------------------------------------------------------------------

my %known = map { $_ => 1 } split(/\n/, $node->safe_psql('postgres', q{
		SELECT proname FROM pg_proc WHERE proname LIKE 'zk\_%'
		UNION SELECT relname FROM pg_class WHERE relname LIKE 'zk\_%'})),
  $zk->cmd('mntr') =~ /^(zk_\w+)/mg, 'zk_synced_followers';
is(join(' ', grep { !$known{$_} } $page =~ /\b(zk_\w+)/g), '', 'the page names functions, views, and what ZooKeeper prints');
is($zk->cmd('srvr') =~ /^Mode: /m ? 1 : 0, 1, 'srvr says what a server does');

$_->quit foreach $holder, $waiter;
$node->stop;
done_testing();
