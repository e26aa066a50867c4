
# An update of the extension from 1.0, in databases where an administrator has withdrawn every
# privilege and granted it to one role, and where users have built on every object: the update
# changes nobody's privileges and breaks nothing of the users, before and after a dump.  And a user
# who made objects beforehand has made no part of the extension.  All objects come from the
# catalogue, so that this holds for those of later versions as well.

use strict;
use warnings;

use FindBin;

use ZklockTest;

my $zk = ZooKeeper->new;
my $node = ZklockNode->started('node', $zk);
$node->safe_psql('postgres', 'CREATE ROLE app LOGIN; CREATE ROLE nobody LOGIN');

# Each function, procedure, view and table: what it is, a name for what is built on it, its own
# name, what a user would write to use it, its privileges, and its object ID.
my $members = q{
	SELECT CASE WHEN c.oid IS NOT NULL THEN 'TABLE'
				WHEN p.prokind = 'p' THEN 'PROCEDURE' ELSE 'FUNCTION' END AS what,
		   'on_' || d.classid || '_' || d.objid,
		   coalesce(c.oid::regclass::text, p.oid::regprocedure::text) AS name,
		   coalesce(c.oid::regclass::text, p.proname || '(' || coalesce((
			   SELECT string_agg('NULL::' || format_type(t.type, NULL), ', ' ORDER BY t.n)
			   FROM unnest(p.proargtypes) WITH ORDINALITY AS t (type, n)), '') || ')'),
		   coalesce(c.relacl::text, p.proacl::text, 'default'),
		   d.objid
	FROM pg_depend AS d
		 LEFT JOIN pg_class AS c ON d.classid = 'pg_class'::regclass AND c.oid = d.objid AND c.relkind IN ('v', 'r')
		 LEFT JOIN pg_proc AS p ON d.classid = 'pg_proc'::regclass AND p.oid = d.objid
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
		  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')
		  AND (c.oid IS NOT NULL OR p.oid IS NOT NULL)
	ORDER BY name};

my %call = (TABLE => 'SELECT * FROM ', FUNCTION => 'SELECT ', PROCEDURE => 'CALL ');

sub members
{
	my ($database) = @_;
	my @fields = qw(what dependent name use acl oid);
	return map { my %member; @member{@fields} = split /\|/; \%member } split /\n/, $node->safe_psql($database, $members);
}

# The privileges of these, without what differs from one database to the next.
sub acls { return join "\n", map { "$_->{name} $_->{acl}" } @_; }

# A database with 1.0, from which all that 1.0 grants to others is withdrawn, and granted to one
# role.  A user's view depends on each object.
sub prepare
{
	my ($database) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $_") foreach $database, "${database}_restored";
	$node->safe_psql($database, q{CREATE EXTENSION zklock VERSION '1.0'});
	foreach my $member (members($database))
	{
		my ($what, $name) = @$member{qw(what name)};
		my ($privilege, $columns) = $what eq 'TABLE' ? qw(SELECT *) : qw(EXECUTE count(*));
		$node->safe_psql($database, qq{
			REVOKE ALL ON $what $name FROM PUBLIC, pg_signal_backend, pg_read_all_stats, pg_database_owner;
			GRANT $privilege ON $what $name TO app;
			CREATE VIEW $member->{dependent} AS SELECT $columns FROM $member->{use};
			GRANT SELECT ON $member->{dependent} TO app});
	}
	return;
}

sub update
{
	my ($database) = @_;
	my @old = members($database);
	my $views = q{SELECT viewname, definition FROM pg_views WHERE viewname LIKE 'on\_%' ORDER BY viewname};
	my $built = $node->safe_psql($database, $views);
	cmp_ok(scalar @old, '>=', 50, "$database: 1.0 has its objects");

	my ($rc, undef, $error) = $node->psql($database, 'ALTER EXTENSION zklock UPDATE');
	is($rc, 0, "$database: the update succeeds") or diag $error;
	is($node->safe_psql($database, $views), $built, "$database: what users have built is as before");
	my %oid = map { $_->{name} => $_->{oid} } members($database);
	is($oid{ $_->{name} }, $_->{oid}, "$database: $_->{name} is the same object") foreach @old;
	are_kept($database, @old);

	my $dump = "${PostgreSQL::Test::Utils::tmp_check}/$database.sql";
	command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr($database) ], "$database: pg_dump");
	command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr("${database}_restored") ], "$database: restore");
	are_kept("${database}_restored", @old);
	return;
}

# Each object of 1.0 has the privileges that the administrator has set.  The role that may use them
# all can read all of its views; the role that may use none finds no way in by newer objects.
sub are_kept
{
	my ($database, @old) = @_;
	my %is_old = map { $_->{name} => 1 } @old;
	my @now = members($database);
	my $app = $node->backend(dbname => $database, extra_params => [ '-U', 'app' ]);
	my $nobody = $node->backend(dbname => $database, extra_params => [ '-U', 'nobody' ]);

	is(acls(grep { $is_old{ $_->{name} } } @now), acls(@old), "$database: the privileges of all objects of 1.0");
	is($app->errcode("SELECT * FROM $_->{use}"), '', "$database: $_->{name} can be read") foreach grep { $_->{what} eq 'TABLE' } @old;
	isnt($app->errcode("SELECT * FROM $_->{dependent}"), '42501', "$database: the user's view of $_->{name}") foreach @old;
	isnt($app->errcode("CALL $_->{use}"), '42501', "$database: $_->{name}, for who may execute its function")
	  foreach grep { $_->{what} eq 'PROCEDURE' } @now;
	cmp_ok(scalar @now, '>', scalar @old, "$database: there are newer objects");
	foreach my $member (@now)
	{
		my $sql = $call{ $member->{what} } . $member->{use};
		is($nobody->errcode($sql), '42501', "$database: $sql, without a privilege");
	}
	$_->quit foreach $app, $nobody;
	return;
}

prepare('updated');
update('updated');

# Here new functions are nobody's by default, but those that the views of 1.0 call are granted.
prepare('hardened');
$node->safe_psql('hardened', 'ALTER DEFAULT PRIVILEGES REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC');
update('hardened');

# --- what a user has made beforehand ---

# What pgspot looks for.  Here are operators that suit the views and functions of the extension better
# than PostgreSQL's own.
$node->safe_psql('postgres', 'CREATE DATABASE prepared');
$node->safe_psql('prepared', qq{
	CREATE FUNCTION seized($_, interval) RETURNS interval LANGUAGE sql RETURN NULL::interval;
	CREATE FUNCTION seized(interval, $_) RETURNS interval LANGUAGE sql RETURN NULL::interval;
	CREATE OPERATOR * (FUNCTION = seized, LEFTARG = $_, RIGHTARG = interval);
	CREATE OPERATOR / (FUNCTION = seized, LEFTARG = interval, RIGHTARG = $_)}) foreach qw(integer bigint);
$node->safe_psql('prepared', q{CREATE EXTENSION zklock VERSION '1.0'; ALTER EXTENSION zklock UPDATE});

my $parts = q{
	WITH member AS (
		SELECT classid, objid FROM pg_depend
		WHERE refclassid = 'pg_extension'::regclass AND deptype = 'e'
			  AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'zklock')),
	part AS (
		SELECT classid, objid FROM member
		UNION ALL SELECT 'pg_rewrite'::regclass, r.oid
		FROM member AS m JOIN pg_rewrite AS r ON m.classid = 'pg_class'::regclass AND r.ev_class = m.objid)
	};
is($node->safe_psql('prepared', $parts . q{
	SELECT DISTINCT pg_describe_object(d.refclassid, d.refobjid, 0)
	FROM part JOIN pg_depend AS d USING (classid, objid)
	WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass, 'pg_class'::regclass)
		  AND d.refobjid >= 16384 AND (d.refclassid, d.refobjid) NOT IN (SELECT classid, objid FROM member)}),
	'', 'no part of the extension uses an object of a user');
is($node->safe_psql('prepared', $parts . q{
	SELECT p.oid::regprocedure
	FROM member AS m JOIN pg_proc AS p ON m.classid = 'pg_proc'::regclass AND p.oid = m.objid
		 JOIN pg_language AS l ON l.oid = p.prolang
	WHERE (p.prosecdef OR (l.lanname <> 'c' AND p.prosqlbody IS NULL))
		  AND p.proconfig IS DISTINCT FROM '{"search_path=pg_catalog, pg_temp"}'}),
	'', 'each function that could look for names in a schema of a user has a search_path');

# A script takes over no object that it finds, but for those of earlier versions.
my ($install, @updates) = map { slurp_file("$FindBin::RealBin/../../zklock--$_.sql") } '1.0', '1.0--1.1', '1.1--1.2';
my %created;
foreach my $script ($install, @updates)
{
	is(join(', ', grep { !$created{$_} } $script =~ /^CREATE OR REPLACE (\w+ \w+)/mg), '', 'only objects of earlier versions are replaced');
	$created{$_} = 1 foreach $script =~ /^CREATE (?!OR REPLACE)(\w+ \w+)/mg;
	unlike($script, qr/IF NOT EXISTS/, 'no script makes do with an object that is there');
}
unlike($install, qr/OR REPLACE/, 'the first one replaces none');

done_testing();
