
=head1 NAME

Workloads - what is measured, with which systems, and how fast zklock has to be

=cut

package Workloads;

use strict;
use warnings;

# In the order in which they are shown.
our @systems = qw(zklock advisory table redis zookeeper Curator kazoo);

# "SYSTEM-FORM" is another way to use a system.  The system's own name stands for its
# fastest form in a workload, except for zklock, which is always the one with default
# settings.
our %name = (
	zklock => 'zklock',
	'zklock-turns' => 'zklock, zklock.tenure = 0',
	'zklock-session' => 'zklock, a session-level lock around the transaction',
	advisory => 'pg_advisory_lock',
	'advisory-named' => 'pg_advisory_lock, a hashed name',
	table => 'lock table',
	redis => 'Redis',
	'redis-wait' => 'Redis, waiting with BLPOP',
	zookeeper => 'raw ZooKeeper client',
	'zookeeper-sessions' => 'raw ZooKeeper client, 16 sessions',
	'zookeeper-multis' => 'raw ZooKeeper client, multis',
	Curator => 'Curator',
	'Curator-shared' => 'Curator, one object for all threads',
	kazoo => 'kazoo',
	plain => 'without zklock');

sub thousands { my ($n) = @_; return $n =~ s/(\d)(\d{3})$/$1,$2/r; }

# CLIENTS on each of SERVERS do a workload.  Floors are how many times as fast as
# another system zklock has to be, with one ZooKeeper and with three; 0: no floor.  "of"
# says what is compared: the rate of rounds, or a time.  "forms" are measured beside the
# systems.  What is only_long is left out of the short form.
our @all = (
	{ id => 'W0', title => 'what ZooKeeper can write: 64 raw clients on 1,000 paths', clients => 64,
		systems => ['zookeeper'], forms => ['zookeeper-sessions'], floors => {} },
	{ id => 'W1', title => 'one path, one client', clients => 1, systems => \@systems,
		floors => { advisory => [ 0.9, 0 ], Curator => [ 7, 10.5 ] } },
	{ id => 'W1x', title => 'one path, one client, a statement each', clients => 1,
		systems => [qw(zklock advisory table redis)],
		floors => { advisory => [ 0.9, 0 ], redis => [ 1.3, 0 ] } },
	{ id => 'W2', title => '1,000 paths, 16 clients', clients => 16, systems => \@systems,
		forms => [qw(advisory-named zookeeper-sessions)],
		floors => { advisory => [ 0.7, 0 ], Curator => [ 6, 9 ], redis => [ 0.8, 0 ] } },
	{ id => 'W2first', title => '1,000 paths, 16 clients, from the start', clients => 16,
		systems => [qw(zklock zookeeper Curator)], forms => ['zookeeper-sessions'], floors => { Curator => [ 4, 4 ] } },
	{ id => 'W2back', title => '1,000 paths that do not linger, 16 clients', clients => 16,
		systems => [qw(zklock zookeeper Curator)], forms => [qw(zookeeper-sessions zookeeper-multis)], floors => { zookeeper => [ 3, 3 ] } },
	{ id => 'W2s', title => '1,000 paths, 3 servers x 8 clients', clients => 8, servers => 3,
		systems => [qw(zklock zookeeper Curator kazoo)], forms => ['zookeeper-sessions'],
		floors => { zookeeper => [ 1.3, 1.3 ], Curator => [ 1.3, 1.3 ] } },
	{ id => 'W2c', title => 'new paths, 16 clients', clients => 16, systems => \@systems,
		forms => [qw(zookeeper-sessions zookeeper-multis)],
		floors => { Curator => [ 4, 4 ], zookeeper => [ 2, 2.5 ] }, fewer_requests_than => 'Curator' },
	{ id => 'W2c-64', family => 'W2c', title => 'new paths, 64 clients', clients => 64,
		systems => [qw(zklock zookeeper Curator)], forms => [qw(zookeeper-sessions zookeeper-multis)], floors => { zookeeper => [ 3, 3 ] } },
	(map { {
		id => "W2multi-$_", family => 'W2multi', title => "one call for 1,000 $_ paths", locks => 1000, of => 'p50_us',
		systems => ['zklock'], floors => {} } } qw(new existing)),
	(map { {
		id => "W3-$_", family => 'W3', title => "one hot path, $_ clients", clients => $_, is_contended => 1,
		systems => \@systems,
		forms => [ 'redis-wait', $_ == 8 || $_ == 64 ? 'Curator-shared' : (), $_ == 64 ? 'zookeeper-sessions' : () ],
		floors => { advisory => [ 0.9, 0 ], Curator => $_ == 64 ? [ 5, 7.5 ] : [ 8, 12 ] } } } 2, 8, 32, 64),
	{ id => 'W4', title => 'one hot path, 3 servers x 8 clients', clients => 8, servers => 3, is_contended => 1,
		systems => [qw(zklock zookeeper Curator kazoo)], forms => ['zklock-turns'],
		floors => { Curator => [ 8, 12 ] }, least_share => 0.5 },
	{ id => 'W5', title => 'read-write lock, 95 % reads, 32 clients', clients => 32, is_contended => 1,
		systems => [qw(zklock advisory Curator)], forms => ['Curator-shared'],
		floors => { advisory => [ 0.7, 0 ], Curator => [ 7, 10.5 ] } },
	{ id => 'W6-1', family => 'W6', title => 'semaphore of 8, 32 clients', clients => 32, is_contended => 1,
		systems => [qw(zklock Curator)], forms => ['Curator-shared'], floors => { Curator => [ 10, 15 ] } },
	{ id => 'W6-3', family => 'W6', title => 'semaphore of 8, 3 servers x 11 clients', clients => 11, servers => 3,
		is_contended => 1, systems => [qw(zklock Curator)], floors => { Curator => [ 3, 4.5 ] } },
	(map { {
		id => "W7-$_", family => 'W7', title => "a try behind @{[thousands($_)]} foreign znodes", clients => 1, queue => $_,
		systems => [qw(zklock Curator)], floors => { Curator => $_ == 5000 ? [ 2, 2 ] : [ 0, 0 ] } } } 10, 100, 1000, 5000),
	(map { {
		id => "W7own-$_", family => 'W7', title => "handover from a server where @{[thousands($_)]} backends queue", crowd => $_,
		of => 'p50_us', systems => ['zklock'], floors => {} } } 10, 100, 1000),
	{ id => 'W8', title => 'handover between servers', systems => [qw(zklock zookeeper Curator)], of => 'p50_us',
		floors => { Curator => [ 1, 1 ] } },
	{ id => 'W8linger', family => 'W8', title => 'acquiring a lock that lingers elsewhere', systems => ['zklock'],
		of => 'p50_us', floors => {} },
	{ id => 'W9', title => 'a transaction without locks: TPC-B', clients => 4,
		systems => [qw(zklock plain)], of => 'instructions', only_one => 1,
		floors => { plain => [ 0.99, 0 ] } },
	{ id => 'W10', title => '8,000 locks held', clients => 1, systems => ['zklock'], floors => {} },
	{ id => 'W11', title => 'a try for a lock that is held elsewhere', clients => 1,
		systems => [qw(zklock Curator)], floors => { Curator => [ 1, 1 ] } },
	{ id => 'W12', title => 'a claim: request, wait, use in a transaction, release', clients => 1,
		systems => [qw(zklock redis)], forms => ['zklock-session'], floors => {} },
	{ id => 'W12wait', family => 'W12', title => '10,000 claims that wait', claims => 10_000, systems => ['zklock'],
		of => 'p50_us', floors => {} });

foreach my $w (@all)
{
	$w->{family} //= $w->{id};
	$w->{of} //= 'rate';
	$w->{servers} //= 1;
	$w->{forms} //= [];
	$w->{only_long} = $w->{id} =~ /^(W2c-64|W2multi-existing|W3-(2|8|64)|W6-1|W7-1000?|W7-5000|W7own-100+)$/;
}

our %by_id = map { $_->{id} => $_ } @all;

# The systems whose rates do not depend on ZooKeeper are measured once.
sub asks_zookeeper { my ($system) = @_; return $system !~ /^(advisory|table|redis|plain)\b/; }

# The measurements of a workload with so many ZooKeeper servers: systems, and their other forms.
sub measured
{
	my ($w, $ensemble) = @_;
	return () if $w->{only_one} && $ensemble > 1;
	return grep { $ensemble == 1 || asks_zookeeper($_) } @{ $w->{systems} }, @{ $w->{forms} };
}

# The forms that may stand for a system in a workload.  No library sends the requests of several clients
# in one transaction, so that form only shows the limit.
sub forms_of
{
	my ($w, $system) = @_;
	return $system if $system eq 'zklock';
	return ($system, grep { /^\Q$system\E-/ && $_ ne 'zookeeper-multis' } @{ $w->{forms} });
}

1;
