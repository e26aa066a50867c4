
# zklock.commit_requires beside Patroni, on the same ZooKeeper: a switchover, a crash, a primary that is
# cut off while its Patroni stands still, and Patroni's pause.

use strict;
use warnings;

use HTTP::Tiny;
use JSON::PP;
use Test::More;
use Time::HiRes qw(usleep);

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;

use FaultNet;
use PgWire;
use ZooKeeper;

plan skip_all => 'there is no patroni' unless -x '/usr/bin/patroni' && system('/usr/bin/python3 -c "import patroni, kazoo"') == 0;

my $leader = '/leaders/orders';
my $leads = "SELECT zk_is_leader('$leader')";
my $zk = ZooKeeper->new;
my $tmp = PostgreSQL::Test::Utils::tempdir();
my $sockets = PostgreSQL::Test::Utils::tempdir_short();
my @names = ('north', 'south');
my (%node, @writers);
END
{
	my $status = $?;
	kill 'KILL', @writers;
	foreach my $node (values %node)
	{
		next unless $node->{patroni};
		kill 'CONT', $node->{patroni};
		kill 'KILL', $node->{patroni};
		system("pg_ctl -D $node->{data} -m immediate stop >/dev/null 2>&1");
	}
	$? = $status;
}

# --- two servers with Patroni, each behind a network that can be cut ---

my $net = FaultNet->new;
foreach my $name (@names)
{
	my $node = $node{$name} = { name => $name, data => "$tmp/$name", map { $_ => PostgreSQL::Test::Cluster::get_free_port() } 'port', 'api' };
	$node->{zk} = $net->link($name, 'zk', $zk->address(1));
	$node->{address} = $net->link('others', $name, "127.0.0.1:$node->{port}");
	$node->{api_address} = $net->link('others', $name, "127.0.0.1:$node->{api}");
}
$net->run;
sub set_links { my ($name, $mode) = @_; $net->set(@$_, $mode) foreach [ $name, 'zk' ], [ 'zk', $name ], [ 'others', $name ], [ $name, 'others' ]; return; }

my %staged = slurp_file($ENV{TEMP_CONFIG}) =~ /^\s*(\w+)\s*=\s*'(.*)'\s*$/mg;
chomp(my $bindir = `pg_config --bindir`);
# The first one that starts is the primary.
foreach my $node (@node{@names})
{
	my %parameters = (
		'shared_preload_libraries' => 'zklock', 'zklock.session_timeout' => '6s', 'zklock.leader_of' => $leader,
		'wal_log_hints' => 'on', 'track_commit_timestamp' => 'on', 'max_wal_size' => '64MB', 'fsync' => 'off');
	my %local = (%staged, 'unix_socket_directories' => $sockets, 'zklock.hosts' => $node->{zk}, 'zklock.node_name' => $node->{name});
	my %config = (
		scope => 'orders', namespace => '/service', name => $node->{name},
		restapi => { listen => "127.0.0.1:$node->{api}", connect_address => $node->{api_address} },
		zookeeper => { hosts => [ $node->{zk} ] },
		bootstrap => {
			dcs => { ttl => 20, loop_wait => 2, retry_timeout => 5, maximum_lag_on_failover => 1048576,
				postgresql => { use_pg_rewind => JSON::PP::true, parameters => \%parameters } },
			initdb => [ { encoding => 'UTF8' }, { auth => 'trust' } ] },
		postgresql => {
			listen => "127.0.0.1:$node->{port}", connect_address => $node->{address}, data_dir => $node->{data}, bin_dir => $bindir,
			pg_hba => [ 'local all all trust', 'host all all 127.0.0.1/32 trust', 'host replication all 127.0.0.1/32 trust' ],
			authentication => { superuser => { username => 'postgres' }, replication => { username => 'replicator', password => 'x' } },
			parameters => \%local });
	append_to_file("$tmp/$node->{name}.yaml", JSON::PP->new->canonical->encode(\%config));
	start_patroni($node);
	wait_for("$node->{name} to run", sub { is_running($node) });
}

sub start_patroni
{
	my ($node) = @_;
	my $pid = fork // die "could not fork: $!";
	if (!$pid)
	{
		open STDOUT, '>>', "$PostgreSQL::Test::Utils::log_path/patroni_$node->{name}.log";
		open STDERR, '>&', \*STDOUT;
		delete @ENV{qw(PGHOST PGPORT PGDATABASE PGUSER)};
		exec '/usr/bin/python3', '/usr/bin/patroni', "$tmp/$node->{name}.yaml" or POSIX::_exit(1);
	}
	return $node->{patroni} = $pid;
}

sub wait_for
{
	my ($what, $test) = @_;
	foreach (1 .. 600)
	{
		return pass("waits for $what") if eval { $test->() };
		usleep(100_000);
	}
	foreach my $name (@names)
	{
		my @lines = log_of($name) =~ /^(.*(?:INFO|WARNING|LOG): .*)$/mg;
		diag("$name: $_") foreach @lines > 8 ? @lines[-8 .. -1] : @lines;
	}
	die "timed out waiting for $what";
}

# What the Patroni and the PostgreSQL of this name logged from byte $at on.
sub log_of { my ($name, $at) = @_; return slurp_file("$PostgreSQL::Test::Utils::log_path/patroni_$name.log", $at); }

sub api
{
	my ($node, $method, $path, $content) = @_;
	my $response = HTTP::Tiny->new(timeout => 60)->request($method, "http://127.0.0.1:$node->{api}$path",
		$content ? { content => encode_json($content), headers => { 'Content-Type' => 'application/json' } } : ());
	return $response;
}
sub is_running { my ($node) = @_; return decode_json(api($node, 'GET', '/patroni')->{content})->{state} eq 'running'; }
sub query { my ($node, $sql) = @_; my $pg = PgWire->new($sockets, $node->{port}, 'test'); my $result = $pg->query($sql); $pg->close; return $result; }
sub value { my ($node, $sql) = @_; my $result = query($node, $sql); die $result->{message} if $result->{error}; return $result->{rows}[0][0]; }

# The standby's own status is "streaming" also while it only tries to connect.
sub follows
{
	my ($standby, $primary) = @_;
	return value($primary, q{SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND flush_lsn = pg_current_wal_flush_lsn()}) == 1
	  && value($standby, 'SELECT pg_is_in_recovery()') eq 't';
}
sub leads { my ($node) = @_; return value($node, $leads) eq 't'; }

# --- clients that write on each server as fast as they can ---

my $runs = 0;
sub start_writers
{
	$runs++;
	foreach my $node (values %node)
	{
		my $pid = fork // die "could not fork: $!";
		next if $pid && push @writers, $pid;
		open my $out, '>', "$tmp/$node->{name}.$runs" or POSIX::_exit(1);
		$out->autoflush;
		my $pg;
		while (1)
		{
			$pg = eval { PgWire->new($sockets, $node->{port}, 'writer', patience => 600) } unless $pg && $pg->is_alive;
			my $result = $pg ? $pg->query("INSERT INTO t VALUES ('$node->{name}')") : { error => 'lost' };
			print $out $result->{error} ? "0 $result->{error}\n" : "$result->{end} ok\n";
			usleep(5_000);
		}
	}
	return;
}

# Returns the last commit of the one and the first of the other, in microseconds.
sub stop_writers
{
	my ($old, $new) = @_;
	kill 'KILL', @writers;
	waitpid $_, 0 foreach @writers;
	@writers = ();
	my %commits = map { $_->{name} => [ slurp_file("$tmp/$_->{name}.$runs") =~ /^(\d+) ok$/mg ] } $old, $new;
	return ($commits{ $old->{name} }[-1] // 0, $commits{ $new->{name} }[0]);
}
sub wrote { my ($node) = @_; return slurp_file("$tmp/$node->{name}.$runs") =~ /ok/; }

# From the one to the other, and what the old one became of.
sub moves
{
	my ($what, $old, $new, $do) = @_;
	start_writers();
	wait_for("$what: $old->{name} to write", sub { wrote($old) });
	my $begun = PgWire::now();
	$do->();
	wait_for("$what: $new->{name} to write", sub { wrote($new) });
	my ($last, $first) = stop_writers($old, $new);
	cmp_ok($last, '<', $first, sprintf '%s: the last commit on the old primary %.1f s after it began, %.1f s before the first on the new one',
		$what, ($last - $begun) / 1e6, ($first - $last) / 1e6);
	return;
}

# --- the bootstrap, and the setting ---

my ($north, $south) = @node{@names};
wait_for('the standby', sub { follows($south, $north) });
query($north, $_) foreach 'CREATE EXTENSION zklock', 'CREATE TABLE t (v text)';
wait_for('the primary to lead', sub { leads($north) });
is(api($north, 'PATCH', '/config', { postgresql => { parameters => { 'zklock.commit_requires' => $leader } } })->{status}, 200, 'the setting is in the dynamic configuration');
foreach my $node ($north, $south)
{
	wait_for("$node->{name} to have it", sub { value($node, 'SHOW zklock.commit_requires') eq $leader });
}

# --- a switchover, a crash, a cut ---

# Patroni answers 503 if the new leader is later than Patroni expects, and completes the switchover all the same.
moves('switchover', $north, $south, sub {
	like(api($north, 'POST', '/switchover', { leader => 'north', candidate => 'south' })->{status}, qr/^(?:200|503)$/, 'switchover');
});
wait_for('the old primary to follow', sub { follows($north, $south) });

my $patroni = $south->{patroni};
moves('kill -9', $south, $north, sub {
	my ($postmaster) = slurp_file("$south->{data}/postmaster.pid") =~ /^(\d+)/;
	kill 'KILL', $patroni, $postmaster;
	waitpid $patroni, 0;
});
my $at = length log_of('south');
start_patroni($south);
wait_for('the killed one to follow', sub { follows($south, $north) });

# South's Patroni compares its timeline with the primary's, also after the first turn in which it does nothing, and would wait
# for the primary's answer through the cut.
wait_for('its Patroni to be content', sub {
	my @turns = log_of('south', $at) =~ /(no action(?=\. I am \(south\), a secondary)|Local timeline=)/g;
	return "@turns" =~ /no action no action/;
});

# Patroni would demote the primary; but it stands still.
moves('cut', $north, $south, sub {
	kill 'STOP', $north->{patroni};
	set_links('north', 'hold');
});
is(query($north, q{INSERT INTO t VALUES ('late')})->{error}, '25006', 'cut: the old primary runs, and refuses');
is(value($north, 'SELECT pg_is_in_recovery()'), 'f', 'cut: it takes itself for a primary');
set_links('north', 'open');
usleep(2_000_000);
is(query($north, q{INSERT INTO t VALUES ('late')})->{error}, '25006', 'cut: and goes on refusing when the network is back');
kill 'CONT', $north->{patroni};
wait_for('the one that was cut off to follow', sub { follows($north, $south) });

# --- pause ---

is(api($south, 'PATCH', '/config', { pause => JSON::PP::true })->{status}, 200, 'pause');
is(query($south, q{INSERT INTO t VALUES ('pause')})->{error}, '', 'pause: the primary commits');
is(value($south, "SELECT zk_leader_resign('$leader')"), 't', 'pause: it resigns');
wait_for('it to lead again', sub { leads($south) });
is(query($south, q{INSERT INTO t VALUES ('pause')})->{error}, '', 'pause: leads again, and commits');
is(api($south, 'PATCH', '/config', { pause => undef })->{status}, 200, 'resume');
is(value($south, q{SELECT count(*) FROM t WHERE v = 'late'}), '0', 'nothing was committed that was refused');

foreach my $node ($north, $south)
{
	kill 'TERM', $node->{patroni};
	waitpid delete $node->{patroni}, 0;
}
done_testing();
