
# ZooKeeper's disks are slow or full, its leader or another of its servers stands still.
# Claims are held, in doubt or lost, and never two hold one lock; waits end in time; and the
# worker neither stands still nor turns in circles.

use strict;
use warnings;

use Cwd qw(abs_path);
use File::Basename qw(dirname);
use Time::HiRes qw(time usleep);

use ZklockTest;

# Every server of ZooKeeper has a disk of its own, which really syncs.
my $disk = PostgreSQL::Test::Utils::tempdir('disk') . '/slow_disk.so';
system_or_bail('cc', '-shared', '-fPIC', '-O', '-o', $disk,
	abs_path(dirname(__FILE__)) . '/../slow_disk.c', '-ldl');
my $zk = ZooKeeper->new(servers => 3, start => 0, java_opts => '-Dzookeeper.forceSync=yes');
sub start { local $ENV{LD_PRELOAD} = $disk; $zk->start(@_); return; }
start();

my %settings = (
	'zklock.session_timeout' => '6s',
	'zklock.connection_timeout' => '2min',
	'zklock.linger' => 0);
my $node_a = ZklockNode->started('a', $zk, %settings);
my $node_b = ZklockNode->started('b', $zk, %settings);
my ($a1, $a2, $b1, $b2) = map { $_->backend } $node_a, $node_a, $node_b, $node_b;
$node_a->safe_psql('postgres', 'CREATE TABLE t (v text)');

sub disk
{
	my ($what, @i) = @_;
	foreach my $i (@i ? @i : 1 .. 3)
	{
		my $file = "$zk->{directory}/$i/disk";
		append_to_file("$file.new", $what);
		rename "$file.new", $file or die $!;
	}
	return;
}

# Backend a1 holds the lock, b1 waits for it.  Does b1 ever have the lock while a1 says that it
# holds it?
my $both;
sub look
{
	my $b_has_it = $b1->is_done;
	my $a_has_it = $a1->query(q{SELECT zk_lock_is_held('/job')}) eq 't';
	$both++ if $a_has_it && $b_has_it;
	return $b_has_it ? 'lost' : $a_has_it ? 'held' : 'doubt';
}

# How often has the worker waited for something so far?
sub turns
{
	my ($node) = @_;
	my ($n) = slurp_file('/proc/' . $node->worker_pid . '/status') =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	return $n;
}

# Strike, look on for some seconds and until the function returns true, then relieve.  Returns how
# the claim ends.
sub fault
{
	my ($what, $seconds, $until, $strike, $relieve) = @_;
	$both = 0;
	is($a1->query(acquire('/job')), 't', "$what: held");
	$b1->send(acquire('/job'));
	$zk->wait_for_children('/zklock/job', 2);

	my @cpu = map { $_->worker_cpu } $node_a, $node_b;
	my @turns = map { turns($_) } $node_a, $node_b;
	my (%seen, %waited);
	my $begin = time;
	$strike->();
	my $sent = time;
	$a2->send(acquire('/a', '1s'));
	$b2->send(acquire('/b', '1s'));
	until (time > $begin + $seconds && $until->(\%seen) && keys %waited == 2)
	{
		$seen{ look() }++;
		foreach my $backend ($a2, $b2)
		{
			$waited{$backend} //= time - $sent if $backend->is_done;
		}
		die "$what: saw only " . join ' ', %seen if time > $begin + 60;
		usleep(50_000);
	}
	my $commit = $a1->errcode("INSERT INTO t VALUES ('$what')");
	my $took = time - $begin;

	foreach my $result ($a2->result, $b2->result)
	{
		like($result->{errcode} || $result->{out}, qr/^(t|f|08006)$/, "$what: a wait ends");
	}
	cmp_ok($waited{$_}, '<', 1 + 4, "$what: in time") foreach keys %waited;
	foreach my $node ($node_a, $node_b)
	{
		my $name = "$what: the worker of " . $node->name;
		cmp_ok(($node->worker_cpu - shift @cpu) / $took, '<', 0.1, "$name uses little CPU time");
		my $rate = (turns($node) - shift @turns) / $took;
		cmp_ok($rate, '>', 0.5, "$name does not stand still");
		cmp_ok($rate, '<', 200, "$name does not turn in circles");
	}

	$relieve->();
	$_->wait_until_connected foreach $node_a, $node_b;
	my $end;
	$zk->wait_until(sub { ($end = look()) ne 'doubt' }, 'all to be clear');
	is($both, 0, "$what: never both");
	like($commit, qr/^(ZK001)?$/, "$what: commits or not");
	note "$what: seen " . join(', ', map { "$_ $seen{$_}" } sort keys %seen) . "; commit '$commit'; in the end $end";

	$a1->run('SELECT zk_lock_release_all()');
	is($b1->answer, 't', "$what: the next one has it");
	$_->run('SELECT zk_lock_release_all()') foreach $a2, $b1, $b2;
	$_->wait_until('SELECT count(*) = 0 FROM zk_locks') foreach $node_a, $node_b;
	return $end;
}

sub until_doubt { my ($seen) = @_; return $seen->{doubt} || $seen->{lost}; }

# The disks are slower than any disk should be, but only waits show that.
is(fault('slow disks', 2, sub { 1 }, sub { disk('slow 500') }, sub { disk('') }),
	'held', 'slow disks: held in the end');

# The disks are so slow that heartbeats are not answered in time.
fault('very slow disks', 0, \&until_doubt, sub { disk('slow 5000') }, sub { disk('') });

# One disk that is full ends its server, and the others go on.
my ($follower) = $zk->followers;
is( fault('a full disk', 1, sub { $zk->mode($follower) eq '' },
		sub { disk('full', $follower) },
		sub { disk('', $follower); $zk->kill9($follower); start($follower) }),
	'held', 'a full disk: held in the end');

fault('all disks full', 0, \&until_doubt,
	sub { disk('full') },
	sub { disk(''); $zk->kill9; start() });

($follower) = $zk->followers;
is(fault('a follower stands still', 2, sub { 1 }, sub { $zk->pause($follower) }, sub { $zk->resume($follower) }),
	'held', 'a follower stands still: held in the end');

my $leader = $zk->leader;
my @others = grep { $_ != $leader } 1 .. 3;
fault('the leader stands still', 0, sub { grep { $zk->mode($_) eq 'leader' } @others },
	sub { $zk->pause($leader) },
	sub { $zk->resume($leader); $zk->wait_until_follower($leader) });

$_->quit foreach $a1, $a2, $b1, $b2;
is_deeply([ grep { /lock-/ } @{ $zk->tree('/zklock') } ], [], 'no znode is left');
$_->stop foreach $node_a, $node_b;
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|terminated by signal/, $_->name . ': a quiet log') foreach $node_a, $node_b;

done_testing();
