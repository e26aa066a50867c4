
# Which of the rules in monitoring/ fire in which state, by real servers, exporters and a Prometheus:
# there is no state in which locks cannot be had, commits are refused or jobs fail, and all is green.
# The rules do not wait here as long as they say; alerts_test.yaml tests that.

use strict;
use warnings;

use Digest::SHA qw(sha1_base64);
use FindBin;
use HTTP::Tiny;
use IPC::Run;
use JSON::PP;
use Test::More;

use ZklockTest;

my $monitoring = "$FindBin::Bin/../../monitoring";
my ($prometheus, $exporter) = map { my $program = $_; (grep { -x } map { "$_/$program" } split /:/, $ENV{PATH})[0] }
  'prometheus', 'prometheus-postgres-exporter';
plan skip_all => 'there is no prometheus, or no postgres_exporter' unless $prometheus && $exporter;
my $http = HTTP::Tiny->new(timeout => 10);
my $tmp = PostgreSQL::Test::Utils::tempdir;
my @running;

sub start_program
{
	my ($name, @command) = @_;
	push @running, IPC::Run::start(\@command, '<', \undef, '>', "$tmp/$name.log", '2>&1');
	return;
}

# An exporter of this server, and its address.
sub start_exporter
{
	my ($node) = @_;
	my $at = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
	local $ENV{DATA_SOURCE_NAME} = 'host=' . $node->host . ' port=' . $node->port . ' user=exporter dbname=postgres sslmode=disable';
	start_program($node->name, $exporter, "--web.listen-address=$at", '--disable-default-metrics', '--disable-settings-metrics',
		"--extend.query-path=$monitoring/postgres_exporter.yaml");
	return $at;
}

sub with_exporter
{
	my ($name, $zk, %settings) = @_;
	my $node = ZklockNode->initialized($name, $zk, %settings);
	$node->start;
	$node->safe_psql('postgres', 'CREATE EXTENSION zklock; CREATE ROLE exporter LOGIN; GRANT pg_monitor TO exporter');
	return $node;
}

# Another client has the lock.
sub take
{
	my ($zk, $path) = @_;
	return $zk->create("$path/_c_1b4e28ba-2fa1-41d2-883f-0016d3cca427-lock-", ephemeral => 1, sequence => 1);
}

# --- the states --------------------------------------------------------------------------------

my ($zk, $other_zk) = map { ZooKeeper->new } 1 .. 2;
my $ours = [ 'digest', 'svc:' . sha1_base64('svc:right') . '=', 'cdrwa' ];
take($zk, '/zklock/led');
take($zk, '/primary/led');
$zk->create($_, acl => [ $ours ]) foreach '/password', '/acl';
append_to_file("$tmp/auth_file", "digest svc:wrong\n");
chmod 0600, "$tmp/auth_file";

my $plain = with_exporter('plain', $zk, 'shared_preload_libraries' => '');
my $password = with_exporter('password', $zk, 'zklock.root' => '/password', 'zklock.auth_file' => "$tmp/auth_file");
my $acl = with_exporter('acl', $zk, 'zklock.root' => '/acl');
my $jobs = with_exporter('jobs', $zk, 'zklock.leader_of' => '/led');
my $primary = with_exporter('primary', $zk, 'zklock.root' => '/primary', 'zklock.leader_of' => '/led');
my $crowded = with_exporter('crowded', $zk, 'zklock.root' => '/crowded', 'max_worker_processes' => 1, 'max_logical_replication_workers' => 0);
my $doubt = with_exporter('doubt', $other_zk, 'zklock.session_timeout' => '4s');

$primary->set('zklock.commit_requires', '/led');
my $failed = $jobs->backend;
$failed->query(q{SELECT zk_run_once('/failed', now())});
$failed->quit;
$jobs->safe_psql('postgres', q{SELECT zk_run_once('/overdue', now() - interval '26 hours'), zk_lock_release('/overdue')});
$jobs->wait_until(q{SELECT count(*) = 2 AND bool_and(state <> 'started') FROM zk_jobs()});
my $holder = $doubt->backend;
$holder->query(acquire('/held'));
$doubt->wait_until('SELECT ensemble_id IS NOT NULL FROM zk_status');

my %targets = (
	exporter => [ '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port() ],
	map { ($_->name => [ start_exporter($_) ]) } $plain, $password, $acl, $jobs, $primary, $crowded, $doubt);
$targets{down} = [ start_exporter(PostgreSQL::Test::Cluster->new('down')) ];
$targets{ensembles} = [ map { @{ $targets{$_} } } 'jobs', 'doubt' ];
$other_zk->kill9;

my %fires = (
	exporter => 'ExporterDown',
	down => 'ServerDown',
	plain => 'Absent QueryFailed',
	password => 'Refused',
	acl => 'Refused',
	crowded => 'WorkerMissing',
	doubt => 'InDoubt NotConnected',
	primary => 'CommitsRefused NobodyLeads',
	jobs => 'JobFailed JobOverdue NobodyLeads',
	ensembles => 'EnsemblesDiffer InDoubt JobFailed JobOverdue NobodyLeads NotConnected');

# --- the rules ---------------------------------------------------------------------------------

append_to_file("$tmp/alerts.yaml", slurp_file("$monitoring/alerts.yaml") =~ s/^\s+for: .*\n//mgr);
my $config = "global: { scrape_interval: 2s, scrape_timeout: 2s, evaluation_interval: 1s }\nrule_files: [ $tmp/alerts.yaml ]\nscrape_configs:\n";
foreach my $job (sort keys %targets)
{
	$config .= "  - job_name: zklock_$job\n    static_configs:\n      - targets: [ " . join(', ', map { "'$_'" } @{ $targets{$job} }) . " ]\n";
}
append_to_file("$tmp/prometheus.yaml", $config);
my $at = '127.0.0.1:' . PostgreSQL::Test::Cluster::get_free_port();
start_program('prometheus', $prometheus, "--config.file=$tmp/prometheus.yaml", "--storage.tsdb.path=$tmp/data", "--web.listen-address=$at");

# The names of the alerts of each job that fire now.
sub firing
{
	my $answer = $http->get("http://$at/api/v1/alerts");
	return {} unless $answer->{success};
	my %now;
	$now{ $_->{labels}{job} // 'none' }{ $_->{labels}{alertname} } = 1 foreach @{ JSON::PP->new->decode($answer->{content})->{data}{alerts} };
	return { map { s/^zklock_//r => join ' ', map { s/^Zklock//r } sort keys %{ $now{$_} } } keys %now };
}

my $now = {};
eval { $zk->wait_until(sub { $now = firing(); !grep { ($now->{$_} // '') ne $fires{$_} } keys %fires }, 'the alerts') };
is($now->{$_} // '', $fires{$_}, "$_: what fires") foreach sort keys %fires;
is(join(' ', grep { !$fires{$_} } sort keys %$now), '', 'and nothing else');

# --- a repair, over the same connection ----------------------------------------------------------

$zk->exists('/', client => 'admin', user => 'svc:right');
$zk->set_acl('/acl', [ 'world', 'anyone', 'cdrwa' ], { client => 'admin' });
$acl->wait_until(q{SELECT state IN ('connected', 'idle') AND connects = 1 FROM zk_status});
is($acl->safe_psql('postgres', acquire('/repaired')), 't', 'the server finds out within a minute that it is not refused any more');

foreach my $run (@running)
{
	$run->signal('TERM');
	$run->finish;
}
$_->stop('immediate') foreach $plain, $password, $acl, $jobs, $primary, $crowded, $doubt;
done_testing();
